"""Masks given column by column, as slices: the rows that see a key, for runs of keys that agree.

Two regions are enough. Below the diagonal, keys `[a, b)` are seen by the rows `[r0, r1)` that are not before them;
above it, by those that are before them. Each is at most two slices.
"""

from __future__ import annotations

from itertools import pairwise

import numpy as np

from octopus.verify.subject import CAUSAL, FULL, INVERSE

Row = tuple[int, int, int, int, int]


def below(a: int, b: int, r0: int, r1: int) -> list[Row]:
    """Slices of the pairs (i, j) with j in [a, b), i in [r0, r1) and i >= j."""
    found = []
    first, last = max(r0, a), min(r1, b)
    if first < last:
        found.append((first, last, a, last, CAUSAL))
    if max(r0, b) < r1:
        found.append((max(r0, b), r1, a, b, FULL))
    return found


def above(a: int, b: int, r0: int, r1: int) -> list[Row]:
    """Slices of the pairs (i, j) with j in [a, b), i in [r0, r1) and i < j."""
    found = []
    if r0 < min(r1, a):
        found.append((r0, min(r1, a), a, b, FULL))
    first, last = max(r0, a), min(r1, b - 1)
    if first < last:
        found.append((first, last, first + 1, b, INVERSE))
    return found


def runs(columns_TN: np.ndarray) -> list[tuple[int, int]]:
    """Half-open runs of rows of the array that are equal."""
    if not len(columns_TN):
        return []
    changes = np.flatnonzero((columns_TN[1:] != columns_TN[:-1]).any(axis=1)) + 1
    bounds = [0, *changes.tolist(), len(columns_TN)]
    return list(pairwise(bounds))


def as_slices(rows: list[Row]) -> np.ndarray:
    """`[S, 5]` int64."""
    return np.array(rows, dtype=np.int64).reshape(-1, 5)
