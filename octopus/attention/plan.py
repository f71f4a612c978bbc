"""A pack's visibility, lowered to flat integers: all that a kernel ever sees.

Letters: T rows (tokens) of the row.
"""

from __future__ import annotations

from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np

from octopus.attention.happens_before import refuse_against_time, wait_rows
from octopus.attention.layout import Layout, lay_out
from octopus.attention.runs import Runs, scan_runs
from octopus.core.ancestry import locate
from octopus.core.errors import PlanError
from octopus.core.segment import Segment
from octopus.core.waits import WaitEdge


@dataclass(frozen=True, kw_only=True, slots=True)
class Slice:
    """Query rows `[q0, q1)` see key rows `[k0, k1)` at the keys' own positions plus `shift`.

    A causal slice is a square on the diagonal (`q0 == k0`, `q1 == k1`): row i sees keys up to i. A mirrored one
    is a square anywhere, in which row `q0 + i` sees key `k0 + i` and later ones: a causal one, read backwards. Only the
    plans of windowed layers have those. Slices of a plan never overlap. Keys may lie before or after their queries.
    """

    q0: int
    q1: int
    k0: int
    k1: int
    causal: bool
    shift: int
    mirrored: bool = False

    @property
    def pairs(self) -> int:
        """Number of visible (query, key) pairs."""
        rows = self.q1 - self.q0
        return rows * (rows + 1) // 2 if self.causal or self.mirrored else rows * (self.k1 - self.k0)


@dataclass(frozen=True, kw_only=True)
class Plan:
    """One row of tokens and who sees whom in it.

    Attributes:
        tokens_T: Token ids.
        positions_T: Each token's own position.
        subtree_ends_T: Key j is visible through the path to rows `[j, subtree_ends_T[j])`.
        predecessors_T: Row of the previous token on the path, -1 at a root.
        slices: The visible pairs, each once.
        starts: First row of each segment.
        wait_edges: `(row waited for, row that went on)`.
    """

    tokens_T: np.ndarray
    positions_T: np.ndarray
    subtree_ends_T: np.ndarray
    predecessors_T: np.ndarray
    slices: tuple[Slice, ...]
    starts: Mapping[Segment, int]
    wait_edges: tuple[tuple[int, int], ...]

    @property
    def length(self) -> int:
        """Number of rows."""
        return len(self.tokens_T)

    @property
    def pairs(self) -> int:
        """Number of visible (query, key) pairs."""
        return sum(piece.pairs for piece in self.slices)

    @cached_property
    def memo(self) -> dict[Hashable, Any]:
        """What a backend derives from the plan once and keeps with it."""
        return {}

    @cached_property
    def runs(self) -> Runs:
        """The stretches of the row that a recurrent layer scans in one go."""
        return scan_runs(self.predecessors_T)


def lower(segments: Sequence[Segment], *, waits: Sequence[WaitEdge] = ()) -> Plan:
    """Lays out segments of one or more episodes as a row.

    Args:
        segments: Closed under parents and mounts. Every token of each takes one row.
        waits: Who went on after whom.

    Raises:
        PlanError: a parent or a mounted segment is missing, or a mount or wait runs against time.
    """
    layout = lay_out(segments)
    refuse_against_time(segments)
    arrays = {name: np.empty(layout.length, dtype=np.int64) for name in ("tokens", "positions", "ends", "before")}
    slices: list[Slice] = []
    for segment in layout.order:
        row, count = layout.starts[segment], len(segment.tokens)
        arrays["tokens"][row : row + count] = segment.tokens
        arrays["positions"][row : row + count] = np.arange(segment.start_position, segment.start_position + count)
        arrays["before"][row : row + count] = np.arange(row - 1, row + count - 1)
        if count:
            arrays["before"][row] = _row_before(segment, layout)
        for start, stop, end in layout.pieces(segment):
            arrays["ends"][row + start : row + stop] = end
            slices += _piece_slices(row + start, row + stop, end)
        slices += _mount_slices(segment, layout)
    return Plan(
        tokens_T=arrays["tokens"],
        positions_T=arrays["positions"],
        subtree_ends_T=arrays["ends"],
        predecessors_T=arrays["before"],
        slices=tuple(slices),
        starts=layout.starts,
        wait_edges=wait_rows(segments, layout.starts, waits),
    )


def _row_before(segment: Segment, layout: Layout) -> int:
    """The row of the last token on the path before the segment: its parent's, through any empty segments."""
    if segment.parent is None or segment.path_start == 0:
        return -1
    place = locate(segment.parent, segment.path_start)
    return layout.starts[place.segment] + place.length - 1


def _piece_slices(start: int, stop: int, end: int) -> list[Slice]:
    """What sees the rows `[start, stop)` through the path: themselves, and everything up to their subtree's end."""
    slices = [Slice(q0=start, q1=stop, k0=start, k1=stop, causal=True, shift=0)]
    if stop < end:
        slices.append(Slice(q0=stop, q1=end, k0=start, k1=stop, causal=False, shift=0))
    return slices


def _mount_slices(segment: Segment, layout: Layout) -> list[Slice]:
    """One rectangle a part: the mounting segment's whole subtree sees it, since descendants inherit."""
    first, end = layout.starts[segment], layout.ends[segment]
    slices = []
    for part in (part for mount in segment.mounts for part in mount.parts):
        if part.segment not in layout.starts:
            raise PlanError(f"{segment} mounts {part.segment}, which is not among the segments given")
        key = layout.starts[part.segment]
        if first < end:
            k0, k1 = key + part.start, key + part.stop
            slices.append(Slice(q0=first, q1=end, k0=k0, k1=k1, causal=False, shift=part.shift))
    return slices
