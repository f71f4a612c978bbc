"""Two small episodes, driven through the graph and through the oracle at once.

Letters: T rows, I tokens by oracle id.
"""

from __future__ import annotations

import random
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Literal, TypeVar

import numpy as np

from octopus.attention.plan import Plan, lower
from octopus.core.errors import invariant
from octopus.core.graph import Graph
from octopus.core.segment import Segment
from octopus.core.thread import Thread
from octopus.core.trace import Trace
from octopus.verify.oracle import Oracle, OracleThread, OracleToken
from octopus.verify.selftest.models import VOCABULARY
from octopus.verify.subject import Descent, Mount, Subject

Pair = TypeVar("Pair")


@dataclass(frozen=True, kw_only=True, eq=False)
class Episode:
    """A row and the truth about it.

    Attributes:
        plan: As our own lowering has it.
        tokens: As the oracle has it, in time order.
        rows_I: Row of each oracle token.
        trace: What happened, for the audits of traces.
    """

    plan: Plan
    tokens: Sequence[OracleToken]
    rows_I: np.ndarray
    trace: Trace

    def subject(self, name: str) -> Subject:
        """Who descends from whom and who reads what, from the oracle alone."""
        return oracle_subject(name, self.tokens, self.rows_I, placement="append")


def oracle_subject(
    name: str,
    tokens: Sequence[OracleToken],
    rows_I: np.ndarray,
    *,
    placement: Literal["append"] | None = None,
) -> Subject:
    """The descent of a row from an oracle's tokens.

    Args:
        name: For reports.
        tokens: In time order.
        rows_I: Row of each of them.
        placement: Of all reads; None if they differ.
    """
    parents_T, times_T = np.full(len(rows_I), -1), np.empty(len(rows_I), dtype=np.int64)
    times_T[rows_I] = np.arange(len(rows_I))
    mounts = []
    for token_id, token in enumerate(tokens):
        before = () if token.predecessor is None else tokens[token.predecessor].visible
        if token.predecessor is not None:
            parents_T[rows_I[token_id]] = rows_I[token.predecessor]
        for seen, position in token.visible:
            if seen != token_id and (seen, position) not in before:
                at, key = int(rows_I[token_id]), int(rows_I[seen])
                shift = position - tokens[seen].position
                mounts.append(Mount(at=at, k0=key, k1=key + 1, shift=shift, placement=placement))
    descent = Descent(parents_T=parents_T, mounts=tuple(mounts), times_T=times_T)
    return Subject(name=name, length=len(rows_I), descent=descent)


def tree(*, backwards: bool = False) -> Episode:
    """A root that goes on after a fork, three branches of one cursor, one of which forks again.

    `backwards` writes the siblings in the other order, which lays them out in the other order too.
    """
    driver = _Driver()
    root = driver.root()
    driver.append(root, 4)
    siblings = [root, *driver.fork(root, 3)]
    for thread, count in _ordered(zip(siblings, (2, 3, 3, 2), strict=True), backwards):
        driver.append(thread, count)
    for thread, count in _ordered(zip(driver.fork(siblings[1], 2), (2, 3), strict=True), backwards):
        driver.append(thread, count)
    return driver.episode()


def rows_by_path(plan: Plan) -> dict[tuple[int, ...], int]:
    """Each row by the tokens of its path, itself last."""
    paths: list[tuple[int, ...]] = []
    for token, before in zip(plan.tokens_T.tolist(), plan.predecessors_T.tolist(), strict=True):
        paths.append((*(paths[before] if before >= 0 else ()), token))
    rows = {path: row for row, path in enumerate(paths)}
    invariant(len(rows) == len(paths), "two rows of an episode have one path")
    return rows


def _ordered(pairs: Iterable[Pair], backwards: bool) -> list[Pair]:
    return list(pairs)[:: -1 if backwards else 1]


def mounts() -> Episode:
    """The same shape, and reads: of a sibling in the middle of a branch, and of two branches by their parent."""
    driver = _Driver()
    root = driver.root()
    driver.append(root, 4)
    a, b = driver.fork(root, 2)
    driver.append(a, 3)
    driver.append(b, 3)
    driver.read(a, b, last=2)
    driver.append(a, 3)
    left, right = driver.fork(b, 2)
    driver.append(left, 2)
    driver.append(right, 2)
    driver.read(root, a)
    driver.read(root, right, last=3)
    driver.append(root, 3)
    return driver.episode()


class _Driver:
    """Makes each call on both sides."""

    def __init__(self) -> None:
        self.trace, self.oracle = Trace(), Oracle()
        self.graph = Graph(trace=self.trace)
        self.ids: dict[tuple[Segment, int], int] = {}

    def root(self) -> tuple[Thread, OracleThread]:
        return self.graph.thread(), self.oracle.thread()

    def fork(self, thread: tuple[Thread, OracleThread], n: int) -> list[tuple[Thread, OracleThread]]:
        return list(zip(self.graph.fork(thread[0], n), self.oracle.fork(thread[1], n), strict=True))

    def append(self, thread: tuple[Thread, OracleThread], count: int) -> None:
        # A thread writes the same whoever writes first.
        rng = random.Random(f"{thread[0].path} {thread[1].own_count}")
        values = [rng.randrange(VOCABULARY) for _ in range(count)]
        self.graph.append(thread[0], values)
        segment, stop = thread[0].cursor
        for i, token_id in enumerate(self.oracle.append(thread[1], values)):
            self.ids[segment, stop - count + i] = token_id

    def read(
        self,
        reader: tuple[Thread, OracleThread],
        source: tuple[Thread, OracleThread],
        last: int | None = None,
    ) -> None:
        self.graph.read_thread(reader[0], source[0], last=last)
        self.oracle.read(reader[1], source[1], last=last)

    def episode(self) -> Episode:
        plan = lower(self.graph.segments, waits=self.graph.waits)
        rows_I = np.empty(len(self.oracle.tokens), dtype=np.int64)
        for (segment, offset), token_id in self.ids.items():
            rows_I[token_id] = plan.starts[segment] + offset
        return Episode(plan=plan, tokens=self.oracle.tokens, rows_I=rows_I, trace=self.trace)
