"""Recurrent scans over a row: which stretches are scanned in one go, and from which state each begins.

Letters: T rows, L steps back.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from octopus.core.errors import invariant


@dataclass(frozen=True, kw_only=True, slots=True)
class Run:
    """Rows `[start, stop)` that follow each other on the path; begins with the final state of run `parent`.

    Attributes:
        parent: Index of the parent run, -1 for zeros.
        level: Number of runs above.
    """

    start: int
    stop: int
    parent: int
    level: int


@dataclass(frozen=True, kw_only=True)
class Runs:
    """All runs of a row, in row order, and their indices by level. Parents lie one level above."""

    runs: tuple[Run, ...]
    levels: tuple[tuple[int, ...], ...]


def scan_runs(predecessors_T: np.ndarray) -> Runs:
    """The maximal runs of a row: cut where the path jumps, and after a row from which more than one row follows.

    Args:
        predecessors_T: Row of the previous token on the path of each row, -1 at a root; always an earlier row.
    """
    if len(predecessors_T) == 0:
        return Runs(runs=(), levels=())
    rows = np.arange(len(predecessors_T))
    successors_T = np.bincount(predecessors_T[predecessors_T >= 0], minlength=len(rows))
    follows = (predecessors_T == rows - 1) & (rows > 0)
    follows[1:] &= successors_T[:-1] == 1
    starts = np.flatnonzero(~follows)
    stops = np.append(starts[1:], len(rows))
    run_of_T = np.cumsum(~follows) - 1
    runs: list[Run] = []
    levels: list[list[int]] = []
    for index, (start, stop) in enumerate(zip(starts.tolist(), stops.tolist(), strict=True)):
        before = int(predecessors_T[start])
        parent = int(run_of_T[before]) if before >= 0 else -1
        invariant(before < 0 or runs[parent].stop == before + 1, f"run {index} must follow the end of run {parent}")
        level = 0 if parent < 0 else runs[parent].level + 1
        if level == len(levels):
            levels.append([])
        levels[level].append(index)
        runs.append(Run(start=start, stop=stop, parent=parent, level=level))
    return Runs(runs=tuple(runs), levels=tuple(tuple(level) for level in levels))


def ancestor_rows(predecessors_T: np.ndarray, steps: int) -> np.ndarray:
    """`[steps, T]`: the row 0, 1, ... steps back on the path of each row, -1 where there is none."""
    ancestors_LT = np.full((steps, len(predecessors_T)), -1, dtype=np.int64)
    if steps:
        ancestors_LT[0] = np.arange(len(predecessors_T))
    for step in range(1, steps):
        before_T = ancestors_LT[step - 1]
        ancestors_LT[step] = np.where(before_T >= 0, predecessors_T[before_T], -1)
    return ancestors_LT
