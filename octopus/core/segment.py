"""A run of tokens with one writer, contiguous positions and constant foreign visibility."""

from __future__ import annotations

from bisect import bisect_right
from typing import TYPE_CHECKING

from octopus.core.cursor import Cursor
from octopus.core.references import LengthMultiset

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
        mounts: What others' tokens become visible at the first token. Fixed once `handed_out` or not empty.
        writer: Id of the one thread that may append.
        opened_at: Event order number of its opening.
        weights_version: Version of the weights that write its KV.
        computed: Number of leading tokens whose KV and recurrent state exist. Always `<= len(tokens)`.
        pages: Page handles, the i-th for offsets `[i * page_size, (i + 1) * page_size)`; `NO_PAGE` once given back.
        states: Recurrent-state slot handles by length: the state after that many tokens.
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

    __slots__ = (
        "__weakref__", "computed", "depth", "handed_out", "index", "jump", "mount_ends", "mount_starts", "mounting",
        "mounts", "opened_at", "pages", "parent", "path_start", "references", "stamps", "start_position", "states",
        "tip", "tokens", "weights_version", "writer",
    )  # fmt: skip

    def __init__(
        self,
        *,
        index: int,
        parent: Cursor | None,
        start_position: int,
        writer: int,
        opened_at: int,
        weights_version: int,
        mounts: tuple[Mount, ...] = (),
    ) -> None:
        self.index = index
        self.parent = parent
        self.start_position = start_position
        self.writer = writer
        self.opened_at = opened_at
        self.weights_version = weights_version
        self.mounts = mounts
        self.tokens: list[int] = []
        self.stamps: list[tuple[int, int]] = []
        self.computed = 0
        self.pages: list[int] = []
        self.states: dict[int, int] = {}
        self.references = LengthMultiset()
        self.mount_starts = LengthMultiset()
        self.mount_ends = LengthMultiset()
        self.tip = False
        self.handed_out = False
        if parent is None:
            self.path_start = self.depth = 0
            self.jump = Cursor(self, 0)
            above = None
        else:
            self.path_start = parent.path_length
            self.depth = parent.segment.depth + 1
            self.jump = jump_target(parent)
            above = parent.segment.mounting
        self.mounting: Segment | None = self if mounts else above

    def extend(self, tokens: list[int], order: int) -> None:
        """Appends `tokens`, written by the event numbered `order`."""
        self.stamps.append((len(self.tokens), order))
        self.tokens += tokens

    def written_at(self, offset: int) -> int:
        """The order number of the event that wrote the token at `offset`."""
        place = bisect_right(self.stamps, offset, key=lambda stamp: stamp[0]) - 1
        return self.stamps[place][1]

    @property
    def held(self) -> bool:
        """Whether anybody stands on the segment. A segment that nobody stands on is cache."""
        return self.tip or bool(self.references)

    def going_on_from(self, length: int) -> bool:
        """Whether somebody may go on from `length`: a thread, snapshot or child stands there, not only mounts."""
        return self.references.count(length) > self.mount_ends.count(length)

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


def jump_target(parent: Cursor) -> Cursor:
    """The jump of a segment opened at `parent`: skew-binary distances, so that any ancestor is O(log depth) away.

    Source: E. W. Myers, "An applicative random-access stack", Information Processing Letters 17 (1983).
    """
    above = parent.segment
    if above.parent is None:
        return parent
    first, second = above.jump.segment, above.jump.segment.jump.segment
    return first.jump if above.depth - first.depth == first.depth - second.depth else parent
