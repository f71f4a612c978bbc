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

from collections.abc import Iterable, Iterator
from dataclasses import replace
from itertools import pairwise

import numpy as np

from octopus.attention.plan import Plan, Slice


def windowed(plan: Plan, window: int | None) -> Plan:
    """The plan in which a row sees only keys less than `window` positions before it, itself included.

    Made once for a plan and a window, and kept with the plan.

    Args:
        plan: who sees whom without a window.
        window: number of positions that a row sees, at least 1; None for all.

    Returns:
        The plan itself if nothing is hidden; else one that differs in its slices only.

    Raises:
        ValueError: the window is less than one position.
    """
    if window is None:
        return plan
    refuse_empty(window)
    key = (windowed, window)
    if key not in plan.memo:
        slices = tuple(_joined(_near(plan, window)))
        plan.memo[key] = plan if slices == plan.slices else replace(plan, slices=slices)
    near: Plan = plan.memo[key]
    return near


def refuse_empty(window: int) -> None:
    """Raises ValueError if a row would not even see itself."""
    if window < 1:
        raise ValueError(f"a window is 1 position or more, since a row sees itself; not {window}")


def _near(plan: Plan, window: int) -> Iterator[Slice]:
    jumps = np.flatnonzero(np.diff(plan.positions_T) != 1) + 1
    for whole in plan.slices:
        if not whole.causal:
            yield from _bands(plan, whole, jumps, window)
            continue
        steps = np.arange(whole.q0, whole.q1, window)
        for q0, q1 in pairwise(_edges(whole.q0, whole.q1, np.union1d(jumps, steps)).tolist()):
            yield from _bands(plan, replace(whole, q0=q0, q1=q1, k1=q0, causal=False), jumps, window)
            yield replace(whole, q0=q0, q1=q1, k0=q0, k1=q1)


def _bands(plan: Plan, whole: Slice, jumps: np.ndarray, window: int) -> Iterator[Slice]:
    """What the rows of a rectangle see within the window: its pieces of consecutive positions, each a band."""
    rows, keys = _edges(whole.q0, whole.q1, jumps), _edges(whole.k0, whole.k1, jumps)
    seen_at_K = plan.positions_T[keys[:-1]] + whole.shift
    # The first row of each piece, counted from the piece's own, that does not see the first key.
    first_QK = window - (plan.positions_T[rows[:-1], None] - seen_at_K)
    for q, k in np.argwhere(first_QK + np.diff(keys) > 1).tolist():
        (q0, q1), (k0, k1) = rows[q : q + 2].tolist(), keys[k : k + 2].tolist()
        yield from _band(replace(whole, q0=q0, q1=q1, k0=k0, k1=k1), int(first_QK[q, k]))


def _edges(start: int, stop: int, at: np.ndarray) -> np.ndarray:
    """Where `[start, stop)` is cut, ends included; `at` ascends."""
    inside = at[np.searchsorted(at, start) : np.searchsorted(at, stop)]
    return np.unique([start, *inside, stop])


def _band(piece: Slice, first: int) -> Iterator[Slice]:
    """What the rows of one piece see: all keys, then one less for each row; from row `first` on not the first key."""
    rows, keys = piece.q1 - piece.q0, piece.k1 - piece.k0
    full = min(max(first, 0), rows)
    last = min(max(first + keys - 1, full), rows)
    if full:
        yield replace(piece, q1=piece.q0 + full)
    if full < last:
        q0, q1 = piece.q0 + full, piece.q0 + last
        k0 = piece.k0 + full - first + 1
        k1 = k0 + last - full
        if last - full == 1:  # A square of one pair is a rectangle as well, and part of the one behind it.
            yield replace(piece, q0=q0, q1=q1, k0=k0)
            return
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
