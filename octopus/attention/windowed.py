"""The plan of a layer with a sliding window: what a row sees of its view is what stands close enough before it.

Close is meant in effective positions: a mounted token stands where the reader sees it, not where it was written. A
slice is cut where positions jump, so that in each piece the distance of row `q0 + r` from key `k0 + c` is that of the
first pair plus `r - c`. Of such a rectangle the first rows see all keys, the last see none, and in between each row
loses one more key:

                keys
          # # # # # #    rows up to `full`: a full rectangle
          # # # # # #
          . # # # # #    rows up to `last`: a mirrored square, and a full rectangle behind it
          . . # # # #
          . . . # # #
          . . . . # #
          . . . . . .    rows from `last` on: nothing

So every slice is of a kind that dense kernels compute without waste, and nothing hidden is ever computed.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from itertools import pairwise

import numpy as np

from octopus.attention.plan import Plan, Slice
from octopus.core.errors import invariant


def windowed(plan: Plan, window: int | None) -> Plan:
    """The plan in which a row sees only keys less than `window` positions before it, itself included.

    Made once for a plan and a window, and kept with the plan.

    Args:
        plan: who sees whom without a window.
        window: number of positions that a row sees, at least 1; None for all.

    Returns:
        The plan itself if nothing is hidden; else one that differs in its slices only.
    """
    if window is None:
        return plan
    invariant(window >= 1, "a row sees itself")
    key = (windowed, window)
    if key not in plan.memo:
        jumps = (np.flatnonzero(np.diff(plan.positions_T) != 1) + 1).tolist()
        slices = tuple(_joined(_near(plan, jumps, window)))
        plan.memo[key] = plan if slices == plan.slices else replace(plan, slices=slices)
    near: Plan = plan.memo[key]
    return near


def _near(plan: Plan, jumps: Sequence[int], window: int) -> Iterator[Slice]:
    for whole in plan.slices:
        for piece in _pieces(whole, jumps, window):
            if piece.causal:
                yield piece
            else:
                yield from _band(piece, int(plan.positions_T[piece.q0] - plan.positions_T[piece.k0]), window)


def _pieces(whole: Slice, jumps: Sequence[int], window: int) -> Iterator[Slice]:
    """Cuts a slice into rectangles and causal squares with consecutive positions, a square as large as the window."""
    steps = range(whole.q0, whole.q1, window) if whole.causal else ()
    for q0, q1 in _cut(whole.q0, whole.q1, (*jumps, *steps)):
        for k0, k1 in _cut(whole.k0, q0 if whole.causal else whole.k1, jumps):
            yield replace(whole, q0=q0, q1=q1, k0=k0, k1=k1, causal=False)
        if whole.causal:
            yield replace(whole, q0=q0, q1=q1, k0=q0, k1=q1)


def _cut(start: int, stop: int, at: Iterable[int]) -> Iterator[tuple[int, int]]:
    return pairwise(sorted({start, stop, *(place for place in at if start < place < stop)}))


def _band(piece: Slice, distance: int, window: int) -> Iterator[Slice]:
    """What the rows of a rectangle see within the window.

    Args:
        piece: consecutive positions, in its rows and in its keys.
        distance: own position of the first row minus that of the first key.
        window: number of positions that a row sees.
    """
    rows, keys = piece.q1 - piece.q0, piece.k1 - piece.k0
    first = window - (distance - piece.shift)  # The first row that does not see the first key.
    full = min(max(first, 0), rows)
    last = min(max(first + keys - 1, full), rows)
    if full:
        yield replace(piece, q1=piece.q0 + full)
    if full < last:
        q0, q1 = piece.q0 + full, piece.q0 + last
        k0 = piece.k0 + full - first + 1
        k1 = k0 + last - full
        yield replace(piece, q0=q0, q1=q1, k0=k0, k1=k1, mirrored=True)
        if k1 < piece.k1:
            yield replace(piece, q0=q0, q1=q1, k0=k1)


def _joined(slices: Iterable[Slice]) -> Iterator[Slice]:
    """Puts rectangles of the same keys together again where one begins with the row after the other's last."""
    before: Slice | None = None
    for piece in slices:
        if before and _continues(before, piece):
            before = replace(before, q1=piece.q1)
            continue
        if before:
            yield before
        before = piece
    if before:
        yield before


def _continues(before: Slice, piece: Slice) -> bool:
    return replace(before, q0=piece.q0, q1=piece.q1) == piece and before.q1 == piece.q0 and not piece.mirrored
