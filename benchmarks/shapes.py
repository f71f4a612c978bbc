"""The episode shapes that every measurement uses, played on a recording graph."""

from __future__ import annotations

from octopus.core.graph import Graph
from octopus.core.segment import Segment

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


def wide() -> list[Segment]:
    """Root 4,096; 64 branches of 256; a join of 512 that reads them all. 20,992 tokens."""
    graph = Graph()
    root = graph.thread()
    graph.append(root, [0] * 4_096)
    branches = graph.fork(root, 64)
    for branch in branches:
        graph.append(branch, [0] * 256)
    for branch in branches:
        graph.read_thread(root, branch)
    graph.append(root, [0] * 512)
    return graph.segments


def deep() -> list[Segment]:
    """Root 4,096; 24 times: two children of 512, the first reads the second, appends 64 and is the next parent.

    30,208 tokens and 449,985,280 visible pairs.
    """
    graph = Graph()
    parent = graph.thread()
    graph.append(parent, [0] * 4_096)
    for _ in range(24):
        first, second = graph.fork(parent, 2)
        graph.append(first, [0] * 512)
        graph.append(second, [0] * 512)
        graph.read_thread(first, second)
        graph.drop(second)
        graph.append(first, [0] * 64)
        parent = first
    return graph.segments
