"""Wrong pairs, gathered by who sees whom: one entry for each pair of stretches, with a count and the smallest example.

Letters: N pieces, B boundaries.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace

import numpy as np

from octopus.verify.case import Case
from octopus.verify.names import Names
from octopus.verify.pairs import Pairs

PIECES = 500_000
"""Pieces that are looked at at once."""

ENOUGH = 2_000_000
"""Pieces after which a set that is this large is no longer divided: its counts are then lower bounds."""

MOST = 1000
"""Groups that are told apart; all further ones are counted together."""
OTHERS = "other segments"

Kind = Callable[[np.ndarray, np.ndarray, np.ndarray], np.ndarray]
"""Gives each piece `(q, k0, k1)` a small number; pieces of different numbers are gathered apart."""


@dataclass(frozen=True, slots=True)
class Group:
    """Pairs of one kind between two stretches; `q` and `k` are the smallest of them."""

    kind: int
    reader: str
    source: str
    count: int
    q: int
    k: int


def gather(case: Case, pairs: Pairs, *, kind: Kind | None = None, cuts: np.ndarray | None = None) -> list[Group]:
    """The groups of a set of pairs, by kind and then by their smallest example.

    Args:
        kind: Tells pieces apart; sees pieces that no stretch, run or cut divides.
        cuts: More rows at which the keys of a piece are divided.
    """
    names = case.names
    bounds_B = [names.starts] if cuts is None else [names.starts, cuts]
    if case.lineage is not None:
        bounds_B.append(np.array([run.start for run in case.lineage.runs], dtype=np.int64))
    edges_B = np.append(np.unique(np.concatenate(bounds_B)), pairs.length)
    found, whole = _Found(names), len(names.names)
    for q_N, k0_N, k1_N in _divided(pairs, edges_B):
        kind_N = np.zeros(len(q_N), dtype=np.int64) if kind is None else kind(q_N, k0_N, k1_N).astype(np.int64)
        key_N = (kind_N * whole + names.index(q_N)) * whole + names.index(k0_N)
        order = np.argsort(key_N, kind="stable")
        first = np.flatnonzero(np.diff(key_N[order], prepend=key_N[order[:1]] - 1))
        counts_M = np.add.reduceat((k1_N - k0_N)[order], first) if len(first) else first
        seat_M = order[first]
        found.add(key_N[seat_M], kind_N[seat_M], q_N[seat_M], k0_N[seat_M], counts_M)
    return found.groups()


def by_stretch(case: Case, rows: np.ndarray) -> Iterator[tuple[str, int, int]]:
    """Name of the stretch, first of the rows, number of the rows; what is beyond MOST stretches comes as one."""
    numbers, first, counts = np.unique(case.names.index(rows), return_index=True, return_counts=True)
    for number, at, count in zip(numbers[:MOST].tolist(), first.tolist(), counts.tolist(), strict=False):
        yield case.names.names[number], int(rows[at]), count
    if len(numbers) > MOST:
        yield OTHERS, int(rows[first[MOST]]), int(counts[MOST:].sum())


class _Found:
    """Groups as they come: MOST of them by name, those with the smallest examples; the others as one of each kind."""

    def __init__(self, names: Names) -> None:
        self._names = names
        self._named: dict[int, Group] = {}
        self._others: dict[int, Group] = {}

    def groups(self) -> list[Group]:
        """All groups, by kind and then by their smallest example."""
        both = [*self._named.values(), *self._others.values()]
        return sorted(both, key=lambda group: (group.kind, group.q, group.k))

    def add(
        self, key_M: np.ndarray, kind_M: np.ndarray, q_M: np.ndarray, k_M: np.ndarray, counts_M: np.ndarray
    ) -> None:
        """Adds pairs, one entry a group, to those that came before."""
        place = np.lexsort((k_M, q_M))
        old_M = np.isin(key_M[place], np.fromiter(self._named, dtype=np.int64, count=len(self._named)))
        new = place[~old_M]
        room = MOST - len(self._named)
        for at in (*place[old_M].tolist(), *new[:room].tolist()):
            self._put(self._named, int(key_M[at]), int(kind_M[at]), int(q_M[at]), int(k_M[at]), int(counts_M[at]))
        rest = new[room:]
        for kind in np.unique(kind_M[rest]).tolist():
            own = rest[kind_M[rest] == kind]
            self._put(self._others, kind, kind, int(q_M[own[0]]), int(k_M[own[0]]), int(counts_M[own].sum()))

    def _put(self, table: dict[int, Group], key: int, kind: int, q: int, k: int, count: int) -> None:
        before = table.get(key)
        if before is not None:
            table[key] = replace(before, count=before.count + count)
        elif table is self._others:
            table[key] = Group(kind, OTHERS, OTHERS, count, q, k)
        else:
            table[key] = Group(kind, self._names.of(q), self._names.of(k), count, q, k)


def _divided(pairs: Pairs, edges_B: np.ndarray) -> Iterator[tuple[np.ndarray, np.ndarray, np.ndarray]]:
    """The runs of the set, cut wherever their keys cross a boundary, about PIECES at a time and ENOUGH together."""
    q_N, k0_N, k1_N = pairs.runs()
    first_N = np.searchsorted(edges_B, k0_N, side="right") - 1
    parts_N = np.searchsorted(edges_B, k1_N, side="left") - first_N
    total_N = np.cumsum(parts_N)
    steps = np.arange(PIECES, min(ENOUGH, int(total_N[-1]) if len(total_N) else 0) + PIECES, PIECES)
    for some in np.split(np.arange(len(q_N)), np.searchsorted(total_N, steps, side="right"))[: len(steps)]:
        run = np.repeat(some, parts_N[some])
        part = first_N[run] + np.arange(len(run)) - np.repeat(np.cumsum(parts_N[some]) - parts_N[some], parts_N[some])
        yield q_N[run], np.maximum(k0_N[run], edges_B[part]), np.minimum(k1_N[run], edges_B[part + 1])
