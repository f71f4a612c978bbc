"""The order of segments in a row: depth-first pre-order, siblings by decreasing fork length.

With it the rows that see a token through the path are one interval, `[row, subtree_end)`:

    root  t0 t1 t2 t3                rows   0 1 2 3 | 4 5 | 6 7
    a  forks at 4, two tokens        end    8 8 6 6 | 6 6 | 8 8
    b  forks at 2, two tokens        b (rows 6, 7) sees t0 and t1 only, and nothing of a
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

from octopus.core.errors import PlanError
from octopus.core.segment import Segment


@dataclass(frozen=True, kw_only=True)
class Layout:
    """Where each segment lies.

    Attributes:
        order: The segments in row order.
        starts: First row of each.
        ends: One past the last row of each one's subtree.
        children: Children of each, by decreasing fork length.
        length: Number of rows.
    """

    order: tuple[Segment, ...]
    starts: dict[Segment, int]
    ends: dict[Segment, int]
    children: dict[Segment, list[Segment]]
    length: int

    def pieces(self, segment: Segment) -> list[tuple[int, int, int]]:
        """The segment's tokens cut at fork offsets, as `(start offset, stop offset, subtree end row)`, ascending."""
        cuts = sorted({0, len(segment.tokens), *(_fork_length(child) for child in self.children[segment])})
        own_end = self.starts[segment] + len(segment.tokens)
        below = self.children[segment]
        pieces, seeing = [], len(below)  # The first `seeing` of them see the piece.
        for start, stop in pairwise(cuts):
            while seeing and _fork_length(below[seeing - 1]) < stop:
                seeing -= 1
            pieces.append((start, stop, self.ends[below[seeing - 1]] if seeing else own_end))
        return pieces


def lay_out(segments: Sequence[Segment]) -> Layout:
    """The layout of `segments`, which must hold the parent of each. Iterative: chains may be any length deep."""
    children: dict[Segment, list[Segment]] = {segment: [] for segment in segments}
    roots = []
    for segment in segments:
        if segment.parent is None:
            roots.append(segment)
        elif segment.parent.segment not in children:
            raise PlanError(f"{segment} continues {segment.parent.segment}, which is not among the segments given")
        else:
            children[segment.parent.segment].append(segment)
    for siblings in children.values():
        siblings.sort(key=lambda child: (-_fork_length(child), child.index))
    order: list[Segment] = []
    stack = roots[::-1]
    while stack:
        segment = stack.pop()
        order.append(segment)
        stack += children[segment][::-1]
    starts, row = {}, 0
    for segment in order:
        starts[segment] = row
        row += len(segment.tokens)
    ends: dict[Segment, int] = {}
    for segment in reversed(order):
        below = children[segment]
        ends[segment] = ends[below[-1]] if below else starts[segment] + len(segment.tokens)
    return Layout(order=tuple(order), starts=starts, ends=ends, children=children, length=row)


def _fork_length(child: Segment) -> int:
    assert child.parent is not None
    return child.parent.length
