"""Runs of rows that see the same outside of themselves, and what that is.

Letters: R runs, N pieces.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np

from octopus.verify.pairs import guard
from octopus.verify.subject import Mount

UNKNOWN = -1
"""A position that cannot be derived, because a mount does not say how it was placed."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Piece:
    """Keys `[k0, k1)`, the first of them seen at position `at` (or UNKNOWN), the others right behind it."""

    k0: int
    k1: int
    at: int
    mounted: bool = False


@dataclass(kw_only=True, slots=True, eq=False)
class Run:
    """Rows `[start, stop)`.

    Attributes:
        before: Row of the token before the first on the path, -1 at a root.
        mounts: What becomes visible at `start`.
        mounted: The same, with where it is seen.
        parent: Index of the run that holds `before`; -1 at a root.
        depth: Number of path tokens before the first.
        position: Expected position of the first row, or UNKNOWN.
    """

    start: int
    stop: int
    before: int
    mounts: list[Mount] = field(default_factory=list)
    mounted: list[Piece] = field(default_factory=list)
    parent: int = -1
    depth: int = 0
    position: int = UNKNOWN


def outside_of(run: Run, runs: Sequence[Run]) -> list[Piece]:
    """What every row of the run sees besides the run itself, from the root on."""
    found = run.mounted[::-1]
    while run.parent >= 0:
        above = runs[run.parent]
        found.append(Piece(k0=above.start, k1=run.before + 1, at=above.position))
        found += above.mounted[::-1]
        run = above
    return found[::-1]


def all_pieces(runs: Sequence[Run], forest: Sequence[int]) -> np.ndarray:
    """`outside_of` of all runs at once: int64 `[N, 5]`, ascending: index of the run, k0, k1, at, mounted.

    Args:
        forest: Indices of the runs, parents first.

    Raises:
        TooManyRuns: there are more pieces than are built.
    """
    counts_R, levels_R = np.zeros((2, len(runs)), dtype=np.int64)
    counts, levels = counts_R.tolist(), levels_R.tolist()
    total = 0
    for index in forest:
        run = runs[index]
        counts[index] = len(run.mounted)
        if run.parent >= 0:
            counts[index] += counts[run.parent] + 1
            levels[index] = levels[run.parent] + 1
        guard(total := total + counts[index])
    counts_R[:], levels_R[:] = counts, levels
    first_R = np.cumsum(counts_R) - counts_R
    table_N5 = np.zeros((total, 5), dtype=np.int64)
    table_N5[:, 0] = np.repeat(np.arange(len(runs)), counts_R)
    _write_own(table_N5, runs, first_R + counts_R)
    parents_R = np.array([run.parent for run in runs], dtype=np.int64)
    order = np.argsort(levels_R, kind="stable")
    for below in np.split(order, np.flatnonzero(np.diff(levels_R[order])) + 1)[1:]:  # Roots have nothing above them.
        above = parents_R[below]
        sizes = counts_R[above]
        step = np.arange(int(sizes.sum())) - np.repeat(np.cumsum(sizes) - sizes, sizes)
        table_N5[np.repeat(first_R[below], sizes) + step, 1:] = table_N5[np.repeat(first_R[above], sizes) + step, 1:]
    return table_N5


def _write_own(table_N5: np.ndarray, runs: Sequence[Run], stop_R: np.ndarray) -> None:
    """The last pieces of each run: what it continues, and what was mounted at its first row."""
    places, rows = [], []
    for run, stop in zip(runs, stop_R.tolist(), strict=True):
        if run.parent >= 0:
            above = runs[run.parent]
            places.append(stop - len(run.mounted) - 1)
            rows.append((above.start, run.before + 1, above.position, 0))
        for left, piece in enumerate(run.mounted):
            places.append(stop - len(run.mounted) + left)
            rows.append((piece.k0, piece.k1, piece.at, 1))
    table_N5[places, 1:] = np.array(rows, dtype=np.int64).reshape(-1, 4)
