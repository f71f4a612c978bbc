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

PIECES = 4_000_000
"""Pieces that are looked at at once."""

ENOUGH = 20_000_000
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
    found: dict[tuple[int, int, int], Group] = {}
    whole, looked_at = len(names.names), 0
    for chunk in pairs.chunks(max(1, PIECES // len(edges_B))):
        if looked_at > ENOUGH:
            break
        q_N, k0_N, k1_N = _divided(chunk, edges_B)
        looked_at += len(q_N)
        kind_N = np.zeros(len(q_N), dtype=np.int64) if kind is None else kind(q_N, k0_N, k1_N).astype(np.int64)
        key_N = (kind_N * whole + names.index(q_N)) * whole + names.index(k0_N)
        order = np.argsort(key_N, kind="stable")
        first = np.flatnonzero(np.diff(key_N[order], prepend=key_N[order[:1]] - 1))
        counts = np.add.reduceat((k1_N - k0_N)[order], first) if len(first) else first
        seat_N = order[first]
        by_place = np.argsort(seat_N)
        for at, count in zip(seat_N[by_place[:MOST]].tolist(), counts[by_place[:MOST]].tolist(), strict=True):
            _add(found, names, int(kind_N[at]), int(q_N[at]), int(k0_N[at]), count)
        for at, count in _lumped(kind_N, seat_N[by_place[MOST:]], counts[by_place[MOST:]]):
            _add(found, names, int(kind_N[at]), int(q_N[at]), int(k0_N[at]), count, named=False)
    return sorted(found.values(), key=lambda group: (group.kind, group.q, group.k))


def by_stretch(case: Case, rows: np.ndarray) -> Iterator[tuple[str, int, int]]:
    """Name of the stretch, first of the rows, number of the rows; what is beyond MOST stretches comes as one."""
    numbers, first, counts = np.unique(case.names.index(rows), return_index=True, return_counts=True)
    for number, at, count in zip(numbers[:MOST].tolist(), first.tolist(), counts.tolist(), strict=False):
        yield case.names.names[number], int(rows[at]), count
    if len(numbers) > MOST:
        yield OTHERS, int(rows[first[MOST]]), int(counts[MOST:].sum())


def _add(
    found: dict[tuple[int, int, int], Group], names: Names, kind: int, q: int, k: int, count: int, *, named: bool = True
) -> None:
    """Adds pairs to their group, or to that of all others once there are MOST."""
    key = (kind, int(names.index(q)), int(names.index(k)))
    if not named or (key not in found and len(found) >= MOST):
        key = (kind, -1, -1)
    before = found.get(key)
    if before is not None:
        found[key] = replace(before, count=before.count + count)
    else:
        reader, source = (OTHERS, OTHERS) if key[1] < 0 else (names.names[key[1]], names.names[key[2]])
        found[key] = Group(kind, reader, source, count, q, k)


def _lumped(kind_N: np.ndarray, seat_M: np.ndarray, counts_M: np.ndarray) -> Iterator[tuple[int, int]]:
    """For each kind among the seats its first one and the sum of their counts."""
    for kind in np.unique(kind_N[seat_M]).tolist():
        own = kind_N[seat_M] == kind
        yield int(seat_M[own][0]), int(counts_M[own].sum())


def _divided(pairs: Pairs, edges_B: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """The runs of the set, cut wherever their keys cross a boundary."""
    q_N, k0_N, k1_N = pairs.runs()
    first_N = np.searchsorted(edges_B, k0_N, side="right") - 1
    parts_N = np.searchsorted(edges_B, k1_N, side="left") - first_N
    run = np.repeat(np.arange(len(q_N)), parts_N)
    part = first_N[run] + np.arange(len(run)) - np.repeat(np.cumsum(parts_N) - parts_N, parts_N)
    return q_N[run], np.maximum(k0_N[run], edges_B[part]), np.minimum(k1_N[run], edges_B[part + 1])
