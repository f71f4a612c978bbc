"""A mask's own structure, found without a descent: chains of rows, the order that they imply, and influence.

A chain is a maximal stretch of rows of which each sees what the one before it sees, and itself. Its last row therefore
sees all that any of its rows sees, and only one row of each chain need be looked at.

Letters: T rows, C chains, N intervals.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from octopus.verify.pairs import Pairs, TooManyRuns


class Chains:
    """The chains of a mask.

    Attributes:
        seen: The mask.
        starts: First row of each chain, ascending; every row is in one.
    """

    def __init__(self, seen: Pairs) -> None:
        self.seen = seen
        self.starts = _chain_starts(seen)

    def lasts(self, intervals_N2: np.ndarray) -> np.ndarray:
        """The last row of each chain's share in the intervals: it sees all that the others of the share see."""
        rows = [intervals_N2[:, 1] - 1]
        for start, stop in intervals_N2.tolist():
            first, last = np.searchsorted(self.starts, [start + 1, stop])
            rows.append(self.starts[first:last] - 1)
        return np.unique(np.concatenate(rows))

    def open_triples(self, limit: int) -> Iterator[tuple[int, int, int]]:
        """`(q, k, j)`: q sees k and k sees j, but q does not see j. One for each pair of chain and k.

        Raises TooManyRuns after `limit` looks.
        """
        looks = 0
        for q in self.starts.tolist():
            row = self.seen.row(q)
            for k in self.lasts(row).tolist() if len(row) else ():
                looks += 1
                if looks > limit:
                    raise TooManyRuns(f"more than {limit:,} pairs of rows would have to be compared")
                if k == q:
                    continue
                beyond = outside(self.seen.row(k), row)
                if beyond is not None:
                    yield q, k, beyond

    def influence(self) -> list[np.ndarray]:
        """For each chain the intervals `[N, 2]` from which its first row can get anything, over any number of layers.

        Later rows of the chain add only rows of the chain itself.
        """
        direct = [self.seen.row(start) for start in self.starts.tolist()]
        sources = [self.lasts(row) if len(row) else np.empty(0, dtype=np.int64) for row in direct]
        reach = direct
        while True:
            grown = [self._grown(own, rows, reach) for own, rows in zip(reach, sources, strict=True)]
            if all(len(a) == len(b) and (a == b).all() for a, b in zip(grown, reach, strict=True)):
                return reach
            reach = grown

    def influence_of(self, row: int, reach: list[np.ndarray]) -> np.ndarray:
        """The intervals that reach one row, given `influence()`."""
        chain = int(np.searchsorted(self.starts, row, side="right")) - 1
        own = np.array([[self.starts[chain], row + 1]])
        return merged(np.concatenate([reach[chain], own]))

    def hops(self, q: int, k: int) -> list[int]:
        """A shortest way `q, ..., k` on which each row sees the next; empty if there is none."""
        came_from = {q: q}
        queue = [q]
        for row in queue:  # Grows while it is walked.
            if self.seen.holds(row, k):
                way = [k, row]
                while way[-1] != q:
                    way.append(came_from[way[-1]])
                return way[::-1]
            for after in self.lasts(self.seen.row(row)).tolist():
                if after not in came_from:
                    came_from[after] = row
                    queue.append(after)
        return []

    def _grown(self, own: np.ndarray, rows: np.ndarray, reach: list[np.ndarray]) -> np.ndarray:
        return merged(np.concatenate([own, *(self.influence_of(row, reach) for row in rows.tolist())]))


def merged(intervals_N2: np.ndarray) -> np.ndarray:
    """Sorted and disjoint intervals that cover the same rows."""
    order = np.argsort(intervals_N2[:, 0], kind="stable")
    starts, reach = intervals_N2[order, 0], np.maximum.accumulate(intervals_N2[order, 1])
    new = np.ones(len(starts), dtype=bool)
    new[1:] = starts[1:] > reach[:-1]
    last = np.append(new[1:], True) if len(new) else new
    return np.stack([starts[new], reach[last]], axis=1)


def outside(inner_N2: np.ndarray, outer_N2: np.ndarray) -> int | None:
    """The first row that is in the inner intervals and not in the outer ones, both sorted; None if there is none."""
    edges = outer_N2.reshape(-1)
    place = np.searchsorted(edges, inner_N2[:, 0], side="right")
    inside = place % 2 == 1
    if not inside.all():
        return int(inner_N2[np.flatnonzero(~inside)[0], 0])
    ends = edges[place] if len(place) else inner_N2[:, 1]
    short = np.flatnonzero(ends < inner_N2[:, 1])
    return int(ends[short[0]]) if len(short) else None


def _chain_starts(seen: Pairs) -> np.ndarray:
    rows_N = seen.edges // seen.stride
    # An edge at the very end of a row is the row's own: the spare point keeps it from the next row.
    relative_N = seen.edges - rows_N * seen.stride
    count_T = np.bincount(rows_N, minlength=seen.length)
    first_T = np.cumsum(count_T) - count_T
    same_T = np.zeros(seen.length, dtype=bool)
    same_T[1:] = (count_T[1:] == count_T[:-1]) & (count_T[1:] > 0)
    member_N = same_T[rows_N]
    place_N = np.flatnonzero(member_N)
    step_N = relative_N[place_N] - relative_N[place_N - count_T[rows_N[place_N]]]
    moved_T = np.bincount(rows_N[place_N], weights=np.abs(step_N), minlength=seen.length)
    last_T = relative_N[np.maximum(first_T + count_T - 1, 0)] if len(relative_N) else np.zeros(seen.length)
    rows_T = np.arange(seen.length)
    before_T = np.roll(last_T, 1)
    grows_T = same_T & (moved_T == 1) & (last_T == rows_T + 1) & (before_T == rows_T)
    return np.flatnonzero(~grows_T)
