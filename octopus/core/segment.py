"""A run of tokens with one writer, contiguous positions and constant foreign visibility."""

from __future__ import annotations

from bisect import bisect_right
from typing import TYPE_CHECKING

from octopus.core.cursor import Cursor
from octopus.core.namespace import PLAIN, Namespace
from octopus.core.nothing import NO_ITEMS, NOTHING
from octopus.core.references import NO_COUNTS, NOBODY, LengthMultiset

if TYPE_CHECKING:
    from octopus.core.mount import Mount


class Segment:
    """Append-only tokens below a parent cursor. Compared by identity.

    Offsets count from the segment's first token. Token `o` has position `start_position + o`, sees everything that
    `parent` sees, the segment's mounts, and the segment's own tokens up to itself.

    Attributes:
        index: Creation number in its graph.
        parent: The cursor it continues, None at a root.
        start_position: Position of its first token.
        tokens: Token ids, append-only.
        stamps: For each append the first offset and the order number of its event.
        mounts: What others' tokens become visible at the first token. Fixed once `handed_out` or not empty.
        writer: Id of the one thread that may append.
        opened_at: Event order number of its opening.
        weights_version: Version of the weights that write its KV.
        computed: Number of leading tokens whose KV and recurrent state exist. Always `<= len(tokens)`.
        reached: The most that `computed` has ever been.
        namespace: What else but tokens and weights decides its KV.
        pages: Page handles, the i-th for offsets `[i * page_size, (i + 1) * page_size)`; `NO_PAGE` once given back.
        states: Recurrent-state slot handles by length: the state after that many tokens.
        host_pages: Handles of the host tier by page index, for pages that lie there (and are `NO_PAGE` in `pages`).
        host_states: Handles of the host tier by length, for states that lie there.
        turns: How many turn boundaries keep the state at a length.
        references: The lengths at which threads, snapshots, children and mounts stand.
        mount_starts: For each of the mounts among `references`, the negated first offset that it shows.
        mount_ends: For each of the mounts among `references`, the length at which it stands.
        tip: Whether the writer stands at the end (and is not in `references`).
        handed_out: Whether a cursor of the still empty segment was given away.
        path_start: Number of path tokens before the first.
        depth: Number of segments above.
        jump: An ancestor cursor some way up; see `ancestry`.
        mounting: The nearest segment on the path, itself included, that has mounts; None without one.
    """

    computed = 0
    handed_out = False
    host_pages: dict[int, int] = NOTHING
    host_states: dict[int, int] = NOTHING
    mount_ends = NO_COUNTS
    mount_starts: LengthMultiset = NOBODY
    pages: list[int] = NO_ITEMS
    reached = 0
    references: LengthMultiset = NOBODY
    stamps: list[tuple[int, int]] = NO_ITEMS
    states: dict[int, int] = NOTHING
    tip = False
    tokens: list[int] = NO_ITEMS
    turns: dict[int, int] = NOTHING

    def __init__(
        self,
        index: int,
        parent: Cursor | None,
        start_position: int,
        writer: int,
        opened_at: int,
        weights_version: int,
        mounts: tuple[Mount, ...] = (),
        namespace: Namespace = PLAIN,
    ) -> None:
        self.index = index
        self.parent = parent
        self.start_position = start_position
        self.writer = writer
        self.opened_at = opened_at
        self.weights_version = weights_version
        self.mounts = mounts
        self.namespace = namespace
        if parent is None:
            self.path_start = self.depth = 0
            self.jump = Cursor(self, 0)
            above = None
        else:
            segment = parent.segment
            self.path_start = segment.path_start + parent.length
            self.depth = segment.depth + 1
            # Skew-binary distances, so that any ancestor is O(log depth) away. Source: E. W. Myers, "An applicative
            # random-access stack", Information Processing Letters 17 (1983).
            first = segment.jump.segment
            far = first.jump
            doubles = segment.parent is not None and segment.depth + far.segment.depth == 2 * first.depth
            self.jump = far if doubles else parent
            above = segment.mounting
        self.mounting: Segment | None = self if mounts else above

    def add_reference(self, length: int, times: int = 1) -> None:
        """So many more stand at `length`."""
        references = self.references
        if references is NOBODY:
            self.references = references = LengthMultiset()
        references.add(length, times)

    def written_at(self, offset: int) -> int:
        """The order number of the event that wrote the token at `offset`."""
        place = bisect_right(self.stamps, offset, key=lambda stamp: stamp[0]) - 1
        return self.stamps[place][1]

    @property
    def held(self) -> bool:
        """Whether anybody stands on the segment. A segment that nobody stands on is cache."""
        return self.tip or len(self.references) > 0

    def going_on_from(self, length: int) -> bool:
        """Whether somebody may go on from `length`: a thread, snapshot or child stands there, not only mounts."""
        return self.going_on_count(length) > 0

    def going_on_count(self, length: int) -> int:
        """How many threads, snapshots and children stand at `length`."""
        return self.references.count(length) - self.mount_ends.count(length)

    @property
    def visible_end(self) -> int:
        """One past the last token that anybody can still see; 0 when nobody stands on the segment."""
        return len(self.tokens) if self.tip else max(0, self.references.maximum)

    @property
    def seen_through_mounts_only(self) -> bool:
        """Whether all who stand here are mounts."""
        return not self.tip and len(self.references) == len(self.mount_starts) > 0

    def __repr__(self) -> str:
        return f"Segment({self.index}, {len(self.tokens)} tokens)"
