"""Finds the longest computed prefix of a token sequence, over all paths, token by token.

Paths without mounts are filed in a radix tree for each namespace. Texts are compared as bytes, four a token; nothing is
ever taken for equal because a hash is. Kept up lazily: segments that have changed are filed at the next look-up.
"""

from __future__ import annotations

from array import array
from collections.abc import Collection
from typing import Any, NamedTuple

from octopus.core.ancestry import locate
from octopus.core.cursor import Cursor
from octopus.core.errors import invariant
from octopus.core.namespace import Namespace
from octopus.core.pool import NO_PAGE
from octopus.core.radix import TOKEN_BYTES, Node
from octopus.core.segment import Segment

_LOOKED_AT = 8
"""How many tokens at either end of a segment the audit compares."""


class Match(NamedTuple):
    """What a look-up found. Holds nothing.

    Attributes:
        cursor: The place whose path is those tokens; None if there are none.
        tokens: How many leading tokens can be gone on from.
        equal: How many leading tokens are computed somewhere, the same ones.
    """

    cursor: Cursor | None
    tokens: int
    equal: int

    @property
    def limited(self) -> bool:
        """Whether a recurrent state was missing farther on, so that less can be used than is there."""
        return self.equal > self.tokens


class PrefixIndex:
    """The segments by what stands on their paths.

    Args:
        recording: Whether the graph only records, so that what is recorded counts as computed.
    """

    def __init__(self, *, recording: bool) -> None:
        self._recording = recording
        self._roots: dict[Namespace, Node] = {}
        self._ends: dict[Segment, Node] = {}  # Where each filed segment ends.
        self._changed: dict[Segment, None] = {}
        self._weights_version = 0

    def touch(self, segment: Segment) -> None:
        """What is computed of `segment` has changed."""
        if segment.mounting is None:
            self._changed[segment] = None

    def forget(self, segment: Segment) -> None:
        """The segment is gone."""
        self._changed.pop(segment, None)
        self._withdraw(segment)

    def clear(self, weights_version: int) -> None:
        """The weights have changed: nothing written before is found."""
        self._roots, self._ends, self._changed = {}, {}, {}
        self._weights_version = weights_version

    def find(
        self, tokens: Any, namespace: Namespace, *, recurrent: bool, claimed: Collection[tuple[Segment, int]] = ()
    ) -> Match:
        """The longest match. Takes time in the tokens, in the runs they fall into, and in what has changed since.

        Args:
            tokens: Token ids: a buffer of 32-bit integers, or any sequence of integers.
            namespace: Where to look.
            recurrent: Whether a match must end where a recurrent state is kept.
            claimed: States that are about to be overwritten.
        """
        self._file_changes()
        root, text = self._roots.get(namespace), encoded(tokens)
        if root is None or text is None:
            return Match(None, 0, 0)
        node, equal = root.find(text)
        cursor = self._with_state(node, equal, claimed) if recurrent else _place(node, equal)
        return Match(cursor, 0 if cursor is None else cursor.path_length, equal)

    def _with_state(self, node: Node, equal: int, claimed: Collection[tuple[Segment, int]]) -> Cursor | None:
        """The farthest place up to `equal` at which a state is kept."""
        above: Node | None = node
        while above is not None and above.parent is not None:
            farthest = max(
                (
                    (segment.path_start + length, -segment.index, Cursor(segment, length))
                    for segment in above.providers
                    for length in (*segment.states, *segment.host_states)
                    if above.start < segment.path_start + length <= min(equal, above.end)
                    and (segment, length) not in claimed
                ),
                default=None,
                key=lambda found: found[:2],
            )
            if farthest is not None:
                return farthest[2]
            above = above.parent
        return None

    # ---- filing ----

    def _file_changes(self) -> None:
        changed = self._changed
        while changed:
            segment = next(iter(changed))
            del changed[segment]
            self._file(segment)

    def _file(self, segment: Segment) -> None:
        """Brings what the tree says of `segment` up to date."""
        end = self._ends.get(segment)
        filed = 0 if end is None else end.end - segment.path_start
        length = self._findable(segment)
        if length < filed:
            self._withdraw(segment)
            end, filed = None, 0
        if length == filed:
            return
        above = self._above(segment) if end is None else end
        text = encoded(segment.tokens[filed:length])
        if above is not None and text is not None:
            self._ends[segment] = above.extend(text, segment)

    def _findable(self, segment: Segment) -> int:
        """How many tokens of the segment may be found."""
        if segment.weights_version != self._weights_version or segment.mounting is not None:
            return 0
        if self._recording:
            return len(segment.tokens)
        trimmed = bool(segment.pages) and segment.pages[0] == NO_PAGE and 0 not in segment.host_pages
        return 0 if trimmed else segment.computed

    def _above(self, segment: Segment) -> Node | None:
        """The node after which the segment's tokens stand; None if what precedes them cannot be found."""
        if segment.path_start == 0:
            if segment.namespace not in self._roots:
                self._roots[segment.namespace] = Node(None, b"", 0, {})
            return self._roots[segment.namespace]
        assert segment.parent is not None
        before = locate(segment.parent, segment.path_start).segment
        if before in self._changed:
            del self._changed[before]
            self._file(before)
        end = self._ends.get(before)
        return None if end is None or end.end < segment.path_start else end.ending_at(segment.path_start)

    def _withdraw(self, segment: Segment) -> None:
        end = self._ends.pop(segment, None)
        if end is not None:
            end.withdraw(segment)

    def check(self, segments: Collection[Segment]) -> None:
        """Raises InvariantViolation unless the tree says what stands on the paths, as far as their ends tell."""
        self._file_changes()
        provided: dict[Segment, int] = {}
        for root in self._roots.values():
            for node in root:
                for segment in node.providers:
                    provided[segment] = provided.get(segment, 0) + node.end - node.start
        for segment, end in self._ends.items():
            if segment not in segments:
                invariant(False, f"{segment} was evicted and can still be found")
            length = end.end - segment.path_start
            if provided.get(segment, 0) != length:
                invariant(False, f"{segment} provides {provided.get(segment, 0)} tokens, filed are {length}")
            if not self._filed_right(segment, end, length):
                invariant(False, f"{segment} is filed under tokens that are not its own")
        if len(provided) != len(self._ends):
            invariant(False, "a segment provides tokens, though it is not filed")

    def _filed_right(self, segment: Segment, end: Node, length: int) -> bool:
        """Whether the runs up to `end` begin and end with the segment's tokens, right after the segment above."""
        node, runs = end, []
        while node.parent is not None and node.start >= segment.path_start:
            runs.append(node.label)
            node = node.parent
        text, some = b"".join(reversed(runs)), min(_LOOKED_AT, length)
        first, last = encoded(segment.tokens[:some]), encoded(segment.tokens[length - some : length])
        if node.end != segment.path_start or len(text) != length * TOKEN_BYTES or first is None or last is None:
            return False
        return text.startswith(first) and text.endswith(last) and self._after(segment, node)

    def _after(self, segment: Segment, node: Node) -> bool:
        """Whether `node` is where the segment above is left, unless what stood there was lost and is not found."""
        if segment.parent is None or segment.path_start == 0:
            return node.parent is None
        above = locate(segment.parent, segment.path_start).segment
        filed = self._ends.get(above)
        return above in node.providers or filed is None or filed.end < segment.path_start


def encoded(tokens: Any) -> bytes | None:
    """The tokens as bytes, `TOKEN_BYTES` each; None if one does not fit, so that it can be nowhere in the tree."""
    try:
        view = memoryview(tokens)
    except TypeError:
        view = None
    if view is not None and view.format == "i" and view.ndim == 1 and view.itemsize == TOKEN_BYTES:
        return view.tobytes()
    try:
        return array("i", tokens if view is None else view.tolist()).tobytes()
    except OverflowError:
        return None


def _place(node: Node, path_length: int) -> Cursor | None:
    if node.parent is None:
        return None
    segment = next(iter(node.providers))
    return Cursor(segment, path_length - segment.path_start)
