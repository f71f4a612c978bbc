"""Slices as key intervals of each row, in the form that cuDNN-frontend's flexible attention takes.

Letters: T rows, E endpoints of a row.
"""

from __future__ import annotations

import numpy as np

from octopus.attention.libraries.key_table import KeyTable
from octopus.attention.libraries.stretches import stretches
from octopus.attention.plan import Slice

Ends = tuple[np.ndarray, np.ndarray]  # First key and stop key of one interval, for each row of a stretch.


def row_endpoints(table: KeyTable) -> np.ndarray:
    """Endpoints `[E, T]`, int32, E odd: row t sees keys `[0, e0)`, `[e1, e2)`, `[e3, e4)` and so on.

    Intervals ascend and do not touch; those that a row lacks are empty. A row that sees nothing has all endpoints 0.
    """
    spans = [(s.q0, s.q1) for s in table.slices]
    found = [
        (piece.start, piece.stop, _intervals([table.slices[n] for n in piece.spans], piece.start, piece.stop))
        for piece in stretches(table.length, spans)
    ]
    most = max((len(intervals) for _, _, intervals in found), default=0)
    ends_ET = np.zeros((2 * most + 1, table.length), dtype=np.int32)
    for start, stop, intervals in found:
        # The first endpoint closes an interval that begins at key 0.
        at_zero = bool(intervals) and not intervals[0][0].any()
        flat = [end for interval in intervals for end in interval][1 if at_zero else 0 :]
        for place, end in enumerate(flat, start=0 if at_zero else 1):
            ends_ET[place, start:stop] = end
        if flat:
            ends_ET[len(flat) + (0 if at_zero else 1) :, start:stop] = flat[-1]
    return ends_ET


def _intervals(slices: list[Slice], start: int, stop: int) -> list[Ends]:
    """What rows `[start, stop)`, all of them in all of the slices, see: ascending, those that touch joined."""
    row = np.arange(start, stop)
    joined: list[Ends] = []
    for first, last in sorted((_ends(s, row) for s in slices), key=lambda ends: int(ends[0][0])):
        if joined and (joined[-1][1] == first).all():
            joined[-1] = (joined[-1][0], last)
        else:
            joined.append((first, last))
    return joined


def _ends(s: Slice, row: np.ndarray) -> Ends:
    if s.causal:
        return np.full_like(row, s.k0), s.k0 + row - s.q0 + 1
    if s.mirrored:
        return s.k0 + row - s.q0, np.full_like(row, s.k1)
    return np.full_like(row, s.k0), np.full_like(row, s.k1)
