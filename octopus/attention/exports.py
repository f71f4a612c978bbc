"""Other forms of a plan, derived along different ways so that they check each other.

Letters: T rows, M most intervals of a row.
"""

from __future__ import annotations

import numpy as np

from octopus.attention.plan import Plan
from octopus.core.cursor import Cursor
from octopus.core.visibility import view


def dense_view(plan: Plan) -> tuple[np.ndarray, np.ndarray]:
    """Who sees whom, and where, from the slices.

    Returns:
        visible_TT, bool: whether query row i sees key row j.
        positions_TT, int64: at which position it sees it; the key's own where it does not.
    """
    visible_TT = np.zeros((plan.length, plan.length), dtype=bool)
    positions_TT = np.repeat(plan.positions_T[None, :], plan.length, axis=0)
    for s in plan.slices:
        rows, keys = slice(s.q0, s.q1), slice(s.k0, s.k1)
        square_NN = np.tri(s.q1 - s.q0, dtype=bool)
        visible_TT[rows, keys] |= square_NN if s.causal else square_NN.T if s.mirrored else True
        positions_TT[rows, keys] += s.shift
    return visible_TT, positions_TT


def interval_endpoints(plan: Plan) -> np.ndarray:
    """`[T, M, 2]`: the key rows that each row sees as half-open intervals, ascending, merged; empty ones are (0, 0).

    Derived from each segment's view, not from the slices. Shifts and windows are left out.
    """
    rows: list[list[tuple[int, int]]] = []
    for segment, start in plan.starts.items():
        outside = [
            (plan.starts[part.segment] + part.start, plan.starts[part.segment] + part.stop)
            for part in view(Cursor(segment, 0))
        ]
        for row in range(start, start + len(segment.tokens)):
            rows.append(_merged([*outside, (start, row + 1)]))
    most = max(map(len, rows), default=0)
    endpoints_TM2 = np.zeros((plan.length, most, 2), dtype=np.int64)
    for row, intervals in enumerate(rows):
        endpoints_TM2[row, : len(intervals)] = intervals
    return endpoints_TM2


def _merged(intervals: list[tuple[int, int]]) -> list[tuple[int, int]]:
    merged: list[tuple[int, int]] = []
    for start, stop in sorted(intervals):
        if merged and merged[-1][1] == start:
            merged[-1] = (merged[-1][0], stop)
        else:
            merged.append((start, stop))
    return merged
