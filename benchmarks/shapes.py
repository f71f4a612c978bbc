"""The episode shapes that every measurement uses, played on a recording graph."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from octopus.core.graph import Graph
from octopus.core.segment import Segment
from octopus.core.thread import Thread

BRANCHES = 12


def paper_143k(scale: int = 1) -> list[Segment]:
    """Root 32,768; 12 branches of 8,192 that read two siblings half-way; a join of 12,288 that reads them all.

    143,360 tokens and 5,142,288,384 visible pairs; `scale` divides every length.
    """
    root_tokens, half, join, read = (n // scale for n in (32_768, 4_096, 12_288, 2_048))
    graph = Graph()
    root = graph.thread()
    graph.append(root, [0] * root_tokens)
    branches = graph.fork(root, BRANCHES)
    for branch in branches:
        graph.append(branch, [0] * half)
    snapshots = [graph.fork(branch)[0] for branch in branches]  # Stand where the first halves end.
    for index, branch in enumerate(branches):
        for step in (1, 2):
            graph.read_thread(branch, snapshots[(index + step) % BRANCHES], last=read)
        graph.append(branch, [0] * half)
    for branch in branches:
        graph.read_thread(root, branch, last=read)
    graph.append(root, [0] * join)
    return graph.segments


def ragged_143k(scale: int = 1) -> list[Segment]:
    """`paper_143k` with branches of odd lengths from 1,000 to 20,000, drawn once, of the same sum.

    Each reads 1 to 4 siblings at a point of its own, so that every mount has a shift of its own.
    """
    rng = np.random.default_rng(143)
    lengths = _odd_lengths(rng, BRANCHES, 8_192 * BRANCHES, low=1_000, high=20_000)
    lengths = [max(n // scale, 3) | 1 for n in lengths]
    points = [int(n * rng.uniform(0.3, 0.7)) for n in lengths]
    readings = [int(rng.integers(1, 5)) for _ in lengths]
    return branching(32_768 // scale, lengths, points, readings, 12_288 // scale, 2_048 // scale)


def branching(
    root_tokens: int,
    lengths: Sequence[int],
    points: Sequence[int],
    readings: Sequence[int],
    join_tokens: int,
    last: int,
) -> list[Segment]:
    """A root, branches of some lengths, each of which reads as many of its next siblings at a point, and a join of all.

    A reader gets at most the `last` tokens that a sibling had at that sibling's own point. If no branch reads anything,
    the join does not either.
    """
    graph = Graph()
    root = graph.thread()
    graph.append(root, [0] * root_tokens)
    branches = graph.fork(root, len(lengths))
    for branch, point in zip(branches, points, strict=True):
        graph.append(branch, [0] * point)
    snapshots = [graph.fork(branch)[0] for branch in branches]
    for index, branch in enumerate(branches):
        for step in range(1, readings[index] + 1):
            graph.read_thread(branch, snapshots[(index + step) % len(branches)], last=last)
        graph.append(branch, [0] * (lengths[index] - points[index]))
    for branch in branches if any(readings) else ():
        graph.read_thread(root, branch, last=last)
    graph.append(root, [0] * join_tokens)
    return graph.segments


def _odd_lengths(rng: np.random.Generator, count: int, total: int, *, low: int, high: int) -> list[int]:
    """Odd numbers of a given (even) sum, between two bounds; `count` is even."""
    while True:
        shares = rng.dirichlet(np.full(count, 2.0)) * total
        lengths = [int(x) | 1 for x in shares[:-1]]
        lengths.append(total - sum(lengths))
        if all(low <= n <= high and n % 2 for n in lengths):
            return lengths


def wide(scale: int = 1) -> list[Segment]:
    """Root 4,096; 64 branches of 256; a join of 512 that reads them all. 20,992 tokens."""
    graph = Graph()
    root = graph.thread()
    graph.append(root, [0] * (4_096 // scale))
    branches = graph.fork(root, 64)
    for branch in branches:
        graph.append(branch, [0] * (256 // scale))
    for branch in branches:
        graph.read_thread(root, branch)
    graph.append(root, [0] * (512 // scale))
    return graph.segments


def deep(scale: int = 1) -> list[Segment]:
    """Root 4,096; 24 times: two children of 512, the first reads the second, appends 64 and is the next parent.

    30,208 tokens and 449,985,280 visible pairs.
    """
    graph = Graph()
    parent = graph.thread()
    graph.append(parent, [0] * (4_096 // scale))
    for _ in range(24):
        first, second = graph.fork(parent, 2)
        graph.append(first, [0] * (512 // scale))
        graph.append(second, [0] * (512 // scale))
        graph.read_thread(first, second)
        graph.drop(second)
        graph.append(first, [0] * (64 // scale))
        parent = first
    return graph.segments


def tree_text_143k(scale: int = 1) -> tuple[list[Segment], tuple[int, ...]]:
    """`paper_143k` as a tree: the root once, and in each branch and in the join the text of what they read.

    217,088 tokens. Also the numbers of the segments that nobody sampled: the root and what was read.
    """
    root_tokens, half, join, read = (n // scale for n in (32_768, 4_096, 12_288, 2_048))
    graph = Graph()
    root = graph.thread()
    graph.append(root, [0] * root_tokens)
    given = [0]

    def line(thread: Thread, parts: Sequence[tuple[int, bool]]) -> None:
        for tokens, sampled in parts:
            thread = graph.fork(thread)[0]  # A segment for each.
            graph.append(thread, [0] * tokens)
            if not sampled:
                given.append(len(graph.segments) - 1)

    for _ in range(BRANCHES):
        line(root, ((half, True), (2 * read, False), (half, True)))
    line(root, ((BRANCHES * read, False), (join, True)))
    return graph.segments, tuple(given)
