"""Who descends from whom, and what follows from it: who may see whom, and at which positions.

A run is a maximal stretch of rows that follow each other on one path with nothing new becoming visible in between; so
all its rows see the same keys outside it. Derived from predecessors and mounts alone.

Letters: T tokens, R runs, N pieces.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np

from octopus.verify.descent import Malformed, predecessors_of
from octopus.verify.pairs import Pairs, of_runs, slice_runs
from octopus.verify.runs import UNKNOWN, Piece, Run, all_pieces, outside_of
from octopus.verify.subject import CAUSAL, FULL, Descent, Mount


@dataclass(frozen=True, kw_only=True, slots=True, eq=False)
class Lineage:
    """A forest of runs.

    Attributes:
        predecessors_T: Row of the previous token on the path, -1 where a path begins.
        runs: By first row.
        run_of_T: Index of the run that a row is in.
        forest: Indices of the runs, parents first.
        order: Indices of the runs, each after those it depends on, as far as that is possible.
        circular: Indices of the runs that depend on themselves through mounts.
        positions_T: Expected positions, or UNKNOWN.
        enters_T, leaves_T: Row a is on the path of row b exactly if enters[a] <= enters[b] < leaves[a].
        times_T: When a row was written; None if not declared.
    """

    predecessors_T: np.ndarray
    runs: tuple[Run, ...]
    run_of_T: np.ndarray
    forest: tuple[int, ...]
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

    def outside(self, run: Run) -> list[Piece]:
        """What every row of a run sees besides the run itself, from the root on."""
        return outside_of(run, self.runs)

    def pieces(self) -> np.ndarray:
        """`outside` of all runs: `[N, 5]`: index of the run, k0, k1, at, mounted. Raises TooManyRuns."""
        return all_pieces(self.runs, self.forest)

    def allowed(self, *, window: int | None = None, sinks: int = 0) -> Pairs:
        """Who may see whom. With a window, distances are those of effective positions.

        Pieces whose position is unknown are not cut. Raises TooManyRuns.
        """
        bounds_R3 = np.array([(run.start, run.stop, run.position) for run in self.runs], dtype=np.int64).reshape(-1, 3)
        starts_R, stops_R, positions_R = bounds_R3.T
        run_N, k0_N, k1_N, at_N, _ = self.pieces().T
        outside = [starts_R[run_N], stops_R[run_N], k0_N, k1_N, np.full_like(k0_N, FULL), at_N - k0_N, at_N]
        own = [*([starts_R, stops_R] * 2), np.full_like(starts_R, CAUSAL), positions_R - starts_R, positions_R]
        table = np.concatenate([np.stack(outside, axis=1), np.stack(own, axis=1)])
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
    """
    predecessors_T = predecessors_of(descent, length)
    _refuse_bad_mounts(descent.mounts, length)
    runs, run_of_T = _runs(predecessors_T, descent.mounts)
    children = _children(runs, run_of_T)
    forest = _forest_order(runs, children)
    order, circular = _dependency_order(runs, run_of_T, forest)
    positions_T = _place(runs, run_of_T, order)
    enters_T, leaves_T = _enclose(runs, children, forest, length)
    return Lineage(
        predecessors_T=predecessors_T,
        runs=tuple(runs),
        run_of_T=run_of_T,
        forest=tuple(forest),
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
    if not any(run.mounts for run in runs):
        return [*forest], ()
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


def _place(runs: Sequence[Run], run_of_T: np.ndarray, order: Sequence[int]) -> np.ndarray:
    """Fills in depth, position and mounted pieces of each run, and returns all expected positions."""

    def position(row: int) -> int:
        run = runs[run_of_T[row]]
        return UNKNOWN if run.position == UNKNOWN else run.position + row - run.start

    for index in order:
        run = runs[index]
        following = 0
        if run.parent >= 0:
            parent = runs[run.parent]
            run.depth = parent.depth + run.before - parent.start + 1
            following = UNKNOWN if parent.position == UNKNOWN else parent.position + run.before - parent.start + 1
        for mount in run.mounts:
            at, following = _mounted(mount, following, position(mount.k0))
            run.mounted.append(Piece(k0=mount.k0, k1=mount.k1, at=at, mounted=True))
        run.position = following
    first_T, position_T = np.array([(r.start, r.position) for r in runs], dtype=np.int64).reshape(-1, 2)[run_of_T].T
    placed_T: np.ndarray = np.where(position_T == UNKNOWN, UNKNOWN, position_T - first_T + np.arange(len(run_of_T)))
    return placed_T


def _mounted(mount: Mount, following: int, mount_start: int) -> tuple[int, int]:
    """Where the first mounted key is seen, and the position of what follows the mount."""
    if UNKNOWN in (following, mount_start):
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
    firsts, base, ends, roots = [0] * len(runs), [0] * len(runs), [0] * length, 0
    for index in forest:
        run, first = runs[index], base[index]
        if run.parent < 0:
            first, roots = roots, roots + sizes[index]
        firsts[index] = first - run.start
        end = ends[run.stop - 1] = first + run.stop - run.start
        for child in children[index]:
            base[child] = end
            end = ends[runs[child].before] = end + sizes[child]
    lengths = [run.stop - run.start for run in runs]
    enters_T = np.arange(length) + np.repeat(np.array(firsts, dtype=np.int64), lengths)
    # Behind a row comes what forks off it and off the rows after it: it ends where the next row with an end does.
    ends_T = np.array(ends, dtype=np.int64)
    marked = np.flatnonzero(ends_T)
    return enters_T, ends_T[marked[np.searchsorted(marked, np.arange(length))]]
