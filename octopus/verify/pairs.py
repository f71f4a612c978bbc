"""Sets of (query, key) pairs as intervals on one line, never as a matrix.

Pair (q, k) is the point `q * (T + 1) + k`; the spare point at the end of each row keeps its runs apart from the next
row's. A set is a sorted list of disjoint intervals of that line, so the algebra of masks is the algebra of intervals.

Letters: T tokens, N runs, S slices.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass

import numpy as np

from octopus.verify.subject import BICAUSAL, CAUSAL, INVERSE

MAX_RUNS = 6_000_000
"""Runs of one set that are built; a few arrays of this length are held at once, together below 1 GiB."""


class TooManyRuns(Exception):
    """The set has more runs than are built. The message says how many."""


@dataclass(frozen=True, slots=True, eq=False)
class Pairs:
    """A set of pairs among `length` tokens.

    Attributes:
        length: T.
        edges: int64, ascending: start, stop, start, stop, ... of the runs on the line.
    """

    length: int
    edges: np.ndarray

    @property
    def stride(self) -> int:
        """Points of the line a row."""
        return self.length + 1

    @property
    def count(self) -> int:
        """Number of pairs."""
        return int((self.edges[1::2] - self.edges[::2]).sum())

    def __bool__(self) -> bool:
        return len(self.edges) > 0

    def runs(self) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """`(q, k0, k1)`, each `[N]`: row q sees keys `[k0, k1)`; ascending."""
        q_N, k0_N = np.divmod(self.edges[::2], self.stride)
        return q_N, k0_N, k0_N + self.edges[1::2] - self.edges[::2]

    def __or__(self, other: Pairs) -> Pairs:
        return self._combined(other, np.logical_or)

    def __and__(self, other: Pairs) -> Pairs:
        return self._combined(other, np.logical_and)

    def __sub__(self, other: Pairs) -> Pairs:
        return self._combined(other, lambda mine, theirs: mine & ~theirs)

    def holds(self, q: int | np.ndarray, k: int | np.ndarray) -> np.ndarray:
        """Whether each pair is in the set."""
        return _inside(self.edges, np.asarray(q) * self.stride + np.asarray(k))

    def row(self, q: int) -> np.ndarray:
        """`[N, 2]`: the intervals of keys that row q sees."""
        first, last = np.searchsorted(self.edges, [q * self.stride, (q + 1) * self.stride])
        return self.edges[first:last].reshape(-1, 2) - q * self.stride

    def blind_rows(self) -> np.ndarray:
        """The rows that see nothing."""
        blind_T = np.ones(self.length, dtype=bool)
        blind_T[self.edges[::2] // self.stride] = False
        return np.flatnonzero(blind_T)

    def of_rows(self, chosen_T: np.ndarray) -> Pairs:
        """The pairs whose query is among the rows chosen by a bool array."""
        keep_N = chosen_T[self.edges[::2] // self.stride]
        return Pairs(self.length, self.edges[np.repeat(keep_N, 2)])

    def without_keys(self, hidden_T: np.ndarray) -> Pairs:
        """The pairs whose key is not among the rows hidden by a bool array."""
        flips = np.flatnonzero(np.diff(hidden_T.astype(np.int8), prepend=0, append=0)).reshape(-1, 2)
        rows = np.unique(self.edges[::2] // self.stride)
        guard(len(rows) * len(flips))
        k0_N, k1_N = np.tile(flips, (len(rows), 1)).T
        return self - of_runs(self.length, np.repeat(rows, len(flips)), k0_N, k1_N)

    def chunks(self, runs: int) -> Iterator[Pairs]:
        """The set in pieces of at most so many runs."""
        for first in range(0, len(self.edges), 2 * runs):
            yield Pairs(self.length, self.edges[first : first + 2 * runs])

    def _combined(self, other: Pairs, rule: Callable[[np.ndarray, np.ndarray], np.ndarray]) -> Pairs:
        points = np.concatenate([self.edges, other.edges])
        points.sort(kind="stable")  # Two ascending lists: a merge.
        keep = rule(_inside(self.edges, points), _inside(other.edges, points))
        return Pairs(self.length, _changes(points, keep))


def of_runs(length: int, q_N: np.ndarray, k0_N: np.ndarray, k1_N: np.ndarray) -> Pairs:
    """The set of runs `(q, [k0, k1))`, which may be empty, overlap and come in any order."""
    some = k0_N < k1_N
    base = q_N[some] * np.int64(length + 1)
    starts, stops = base + k0_N[some], base + k1_N[some]
    order = np.argsort(starts, kind="stable")
    starts, reach = starts[order], np.maximum.accumulate(stops[order])
    new = np.ones(len(starts), dtype=bool)
    new[1:] = starts[1:] > reach[:-1]
    edges = np.empty(2 * int(new.sum()), dtype=np.int64)
    edges[::2] = starts[new]
    edges[1::2] = reach[np.flatnonzero(np.append(new[1:], True))] if len(starts) else reach
    return Pairs(length, edges)


def of_slices(length: int, slices_S5: np.ndarray) -> Pairs:
    """The set that slices `(q0, q1, k0, k1, kind)` cover, however they overlap.

    Raises:
        TooManyRuns: the slices have more rows together than are built.
    """
    q_N, k0_N, k1_N = slice_runs(slices_S5)
    return of_runs(length, q_N, k0_N, k1_N)


def slice_runs(slices_S5: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """`(q, k0, k1)` of every row of every slice, in the order of the slices; runs may be empty (k1 <= k0)."""
    q0_S, q1_S, k0_S, k1_S, kind_S = np.asarray(slices_S5, dtype=np.int64).reshape(-1, 5).T
    rows_S = np.maximum(q1_S - q0_S, 0)
    guard(int(rows_S.sum()))
    slice_N = np.repeat(np.arange(len(rows_S)), rows_S)
    row_N = np.arange(len(slice_N)) - np.repeat(np.cumsum(rows_S) - rows_S, rows_S)
    kind_N = kind_S[slice_N]
    left_N = rows_S[slice_N] - 1 - row_N  # Rows that follow in the same slice.
    k0_N = k0_S[slice_N] + np.where((kind_N == INVERSE) | (kind_N == BICAUSAL), row_N, 0)
    k1_N = k1_S[slice_N] - np.where((kind_N == CAUSAL) | (kind_N == BICAUSAL), left_N, 0)
    return q0_S[slice_N] + row_N, k0_N, k1_N


def of_dense(seen_QK: np.ndarray, query_start: int = 0) -> Pairs:
    """The set of a bool matrix whose first row is the query at token `query_start`; keys are all T tokens."""
    rows, length = seen_QK.shape
    padded = np.zeros((rows, length + 2), dtype=bool)
    padded[:, 1:-1] = seen_QK
    flips = np.flatnonzero(padded[:, 1:] != padded[:, :-1])
    guard(len(flips) // 2)
    # Row r of the flips has T + 1 places, as a row of the line has.
    return Pairs(length, flips.astype(np.int64) + query_start * (length + 1))


def guard(runs: int) -> None:
    """Raises TooManyRuns if a set of so many runs is not built."""
    if runs > MAX_RUNS:
        raise TooManyRuns(f"{runs:,} runs of keys; at most {MAX_RUNS:,} are built")


def _inside(edges: np.ndarray, points: np.ndarray) -> np.ndarray:
    inside: np.ndarray = np.searchsorted(edges, points, side="right") % 2 == 1
    return inside


def _changes(points: np.ndarray, keep: np.ndarray) -> np.ndarray:
    """The points at which membership changes; `keep[i]` holds from `points[i]` to the next point."""
    last = np.ones(len(points), dtype=bool)
    last[:-1] = points[1:] != points[:-1]
    points, keep = points[last], keep[last]
    before = np.zeros(len(keep), dtype=bool)
    before[1:] = keep[:-1]
    changes: np.ndarray = points[keep != before]
    return changes
