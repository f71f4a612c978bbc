"""Who descends from whom, and what follows from it: who may see whom, and at which positions.

A run is a maximal stretch of rows that follow each other on one path with nothing new becoming visible in between; so
all its rows see the same keys outside it. Derived from predecessors and mounts alone.

Letters: T tokens, R runs, N pieces.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

import numpy as np

from octopus.verify.descent import Malformed, predecessors_of
from octopus.verify.pairs import Pairs, guard, of_runs, slice_runs
from octopus.verify.subject import CAUSAL, FULL, Descent, Mount

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
        parent: Index of the run that holds `before`; -1 at a root.
        depth: Number of path tokens before the first.
        position: Expected position of the first row, or UNKNOWN.
        outside: What every row of the run sees besides the run itself.
    """

    start: int
    stop: int
    before: int
    mounts: list[Mount] = field(default_factory=list)
    parent: int = -1
    depth: int = 0
    position: int = 0
    outside: list[Piece] = field(default_factory=list)


@dataclass(frozen=True, kw_only=True, slots=True, eq=False)
class Lineage:
    """A forest of runs.

    Attributes:
        predecessors_T: Row of the previous token on the path, -1 where a path begins.
        runs: By first row.
        run_of_T: Index of the run that a row is in.
        order: Indices of the runs, each after those it depends on, as far as that is possible.
        circular: Indices of the runs that depend on themselves through mounts.
        positions_T: Expected positions, or UNKNOWN.
        enters_T, leaves_T: Row a is on the path of row b exactly if enters[a] <= enters[b] < leaves[a].
        times_T: When a row was written; None if not declared.
    """

    predecessors_T: np.ndarray
    runs: tuple[Run, ...]
    run_of_T: np.ndarray
    order: tuple[int, ...]
    circular: tuple[int, ...]
    positions_T: np.ndarray
    enters_T: np.ndarray
    leaves_T: np.ndarray
    times_T: np.ndarray | None

    @property
    def length(self) -> int:
        """T."""
        return len(self.predecessors_T)

    @property
    def depths_T(self) -> np.ndarray:
        """Number of path tokens before each row."""
        firsts = np.array([run.depth - run.start for run in self.runs], dtype=np.int64)
        depths_T: np.ndarray = np.arange(self.length) + firsts[self.run_of_T]
        return depths_T

    def on_path(self, above: np.ndarray, below: np.ndarray) -> np.ndarray:
        """Whether each row of `above` is on the path of (or is) that of `below`."""
        enters = self.enters_T[below]
        on_path: np.ndarray = (self.enters_T[above] <= enters) & (enters < self.leaves_T[above])
        return on_path

    def allowed(self, *, window: int | None = None, sinks: int = 0) -> Pairs:
        """Who may see whom. With a window, distances are those of effective positions.

        Pieces whose position is unknown are not cut. Raises TooManyRuns.
        """
        slices = []
        for run in self.runs:
            rows = run.start, run.stop
            slices += [(*rows, see.k0, see.k1, FULL, see.at - see.k0, see.at) for see in run.outside]
            slices.append((*rows, *rows, CAUSAL, run.position - run.start, run.position))
        table = np.array(slices, dtype=np.int64).reshape(-1, 7)
        q_N, k0_N, k1_N = slice_runs(table[:, :5])
        if window is None:
            return of_runs(self.length, q_N, k0_N, k1_N)
        slice_N = np.repeat(np.arange(len(table)), table[:, 1] - table[:, 0])
        offset_N = table[slice_N, 5]
        known_N = (table[slice_N, 6] != UNKNOWN) & (self.positions_T[q_N] != UNKNOWN)
        first_N = np.maximum(k0_N, self.positions_T[q_N] - window + 1 - offset_N)
        near = of_runs(self.length, q_N, np.where(known_N, first_N, k0_N), k1_N)
        return near | of_runs(self.length, q_N, k0_N, np.minimum(k1_N, sinks - offset_N))


def lineage_of(descent: Descent, length: int) -> Lineage:
    """Walks the declared descent.

    Raises:
        Malformed: it describes no forest, or a mount leads outside the row.
        TooManyRuns: it has more pieces than are built.
    """
    predecessors_T = predecessors_of(descent, length)
    _refuse_bad_mounts(descent.mounts, length)
    runs, run_of_T = _runs(predecessors_T, descent.mounts)
    children = _children(runs, run_of_T)
    forest = _forest_order(runs, children)
    order, circular = _dependency_order(runs, run_of_T, forest)
    positions_T = _place(runs, run_of_T, order, length)
    enters_T, leaves_T = _enclose(runs, children, forest, length)
    return Lineage(
        predecessors_T=predecessors_T,
        runs=tuple(runs),
        run_of_T=run_of_T,
        order=tuple(order),
        circular=circular,
        positions_T=positions_T,
        enters_T=enters_T,
        leaves_T=leaves_T,
        times_T=descent.times_T,
    )


def _refuse_bad_mounts(mounts: Iterable[Mount], length: int) -> None:
    for mount in mounts:
        if not (0 <= mount.at < length and 0 <= mount.k0 < mount.k1 <= length):
            raise Malformed(f"a mount of rows [{mount.k0}, {mount.k1}) at row {mount.at} leads outside {length} rows")


def _runs(predecessors_T: np.ndarray, mounts: Sequence[Mount]) -> tuple[list[Run], np.ndarray]:
    length = len(predecessors_T)
    begins_T = predecessors_T != np.arange(-1, length - 1)
    begins_T[:1] = True
    begins_T[[mount.at for mount in mounts]] = True
    starts = np.flatnonzero(begins_T)
    bounds = zip(starts.tolist(), [*starts[1:].tolist(), length], predecessors_T[starts].tolist(), strict=True)
    runs = [Run(start=start, stop=stop, before=before) for start, stop, before in bounds] if length else []
    run_of_T = np.cumsum(begins_T) - 1
    for mount in mounts:
        runs[run_of_T[mount.at]].mounts.append(mount)
    for run in runs:
        run.parent = int(run_of_T[run.before]) if run.before >= 0 else -1
    return runs, run_of_T


def _children(runs: Sequence[Run], run_of_T: np.ndarray) -> list[list[int]]:
    """The runs that continue each run, those that fork off last first."""
    children: list[list[int]] = [[] for _ in runs]
    for index, run in enumerate(runs):
        if run.parent >= 0:
            children[run.parent].append(index)
    for below in children:
        below.sort(key=lambda index: -runs[index].before)
    return children


def _forest_order(runs: Sequence[Run], children: Sequence[Sequence[int]]) -> list[int]:
    """The runs, parents first. Raises Malformed for a circle."""
    order: list[int] = []
    stack = [index for index, run in enumerate(runs) if run.parent < 0]
    while stack:
        index = stack.pop()
        order.append(index)
        stack += children[index]
    if len(order) < len(runs):
        row = min(runs[index].start for index in set(range(len(runs))).difference(order))
        raise Malformed(f"the parents of row {row} form a circle", row=row)
    return order


def _dependency_order(
    runs: Sequence[Run], run_of_T: np.ndarray, forest: Sequence[int]
) -> tuple[list[int], tuple[int, ...]]:
    """The runs after what they continue and mount; those in a circle last, in the order of the forest."""
    needs = [
        ({run.parent} if run.parent >= 0 else set())
        | {int(part) for m in run.mounts for part in np.unique(run_of_T[m.k0 : m.k1])}
        for run in runs
    ]
    used_by: list[list[int]] = [[] for _ in runs]
    for index, need in enumerate(needs):
        for other in need:
            used_by[other].append(index)
    left = [len(need) for need in needs]
    order = [index for index in forest if not left[index]]
    for index in order:  # Grows while it is walked.
        for user in used_by[index]:
            left[user] -= 1
            if not left[user]:
                order.append(user)
    done = set(order)
    circular = tuple(index for index in forest if index not in done)
    return [*order, *circular], circular


def _place(runs: Sequence[Run], run_of_T: np.ndarray, order: Sequence[int], length: int) -> np.ndarray:
    """Fills in depth, position and outside of each run, and returns all expected positions."""
    positions_T = np.full(length, UNKNOWN, dtype=np.int64)
    pieces = 0
    for index in order:
        run = runs[index]
        following = 0
        if run.parent >= 0:
            parent = runs[run.parent]
            run.depth = parent.depth + run.before - parent.start + 1
            following = UNKNOWN if positions_T[run.before] == UNKNOWN else int(positions_T[run.before]) + 1
            run.outside = [*parent.outside, Piece(k0=parent.start, k1=run.before + 1, at=parent.position)]
        for mount in run.mounts:
            at, following = _mounted(mount, following, positions_T)
            run.outside.append(Piece(k0=mount.k0, k1=mount.k1, at=at, mounted=True))
        run.position = following
        if following != UNKNOWN:
            positions_T[run.start : run.stop] = np.arange(following, following + run.stop - run.start)
        pieces += len(run.outside)
        guard(pieces)
    return positions_T


def _mounted(mount: Mount, following: int, positions_T: np.ndarray) -> tuple[int, int]:
    """Where the first mounted key is seen, and the position of what follows the mount."""
    if UNKNOWN in (following, mount_start := int(positions_T[mount.k0])):
        at_known = mount.placement == "append" and following != UNKNOWN
        return (following, following + mount.k1 - mount.k0) if at_known else (UNKNOWN, UNKNOWN)
    if mount.placement == "append":
        return following, following + mount.k1 - mount.k0
    if mount.placement is None and mount.shift is None:
        return UNKNOWN, UNKNOWN
    at = mount_start + (mount.shift or 0)
    return at, max(following, at + mount.k1 - mount.k0)


def _enclose(
    runs: Sequence[Run], children: Sequence[Sequence[int]], forest: Sequence[int], length: int
) -> tuple[np.ndarray, np.ndarray]:
    """Tree intervals of the rows: a run's rows first, then what forks off it, the latest forks first."""
    sizes = [run.stop - run.start for run in runs]
    for index in reversed(forest):
        if runs[index].parent >= 0:
            sizes[runs[index].parent] += sizes[index]
    enters_T, leaves_T = np.empty((2, length), dtype=np.int64)
    base = [0] * len(runs)
    roots = 0
    for index in forest:
        run, first = runs[index], base[index]
        if run.parent < 0:
            first, roots = roots, roots + sizes[index]
        rows = run.stop - run.start
        enters_T[run.start : run.stop] = np.arange(first, first + rows)
        leaves_T[run.start : run.stop] = first + rows
        end = first + rows
        for child in children[index]:
            base[child] = end
            end += sizes[child]
            leaves_T[run.start : runs[child].before + 1] = end
    return enters_T, leaves_T
