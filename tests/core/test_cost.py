"""What the primitives cost: no memory, and time that does not grow with length or depth."""

from __future__ import annotations

import gc
import time
from collections.abc import Callable
from itertools import pairwise

import pytest

from octopus.core.graph import Graph
from octopus.core.limits import Limits
from octopus.core.thread import Thread

DEEP = Limits(fan_out=4, depth=2_000)
TOKENS = (100, 100_000)
DEPTHS = (1, 1_000)


def line(*, tokens: int, depth: int) -> tuple[Graph, Thread]:
    """A thread at the end of `depth` forks, each a segment below the other, with `tokens` tokens on its path."""
    graph = Graph(limits=DEEP)
    thread = graph.thread()
    graph.append(thread, [1] * (tokens - depth + 1))
    for _ in range(depth - 1):
        (thread,) = graph.fork(thread)
        graph.append(thread, [1])
    graph.commit(thread, keep_running=True)  # From here on only new tokens are left to hash.
    return graph, thread


def quartile_us(call: Callable[[int], object], repeats: int = 400) -> float:
    """The lower quartile of many calls, in microseconds. `call` gets the number of the call."""
    gc.collect()
    gc.disable()
    times = []
    for index in range(repeats):
        start = time.perf_counter_ns()
        call(index)
        times.append(time.perf_counter_ns() - start)
    gc.enable()
    return sorted(times)[len(times) // 4] / 1000


def fork_us(*, tokens: int, depth: int) -> float:
    graph, thread = line(tokens=tokens, depth=depth)
    return quartile_us(lambda _: graph.fork(thread))


def commit_us(*, tokens: int, depth: int) -> float:
    graph, thread = line(tokens=tokens, depth=depth)
    graph.append(thread, [1])
    threads = [child for _ in range(100) for child in graph.fork(thread, 4)]
    for child in threads:
        graph.append(child, [1])
    return quartile_us(lambda i: graph.commit(threads[i]), repeats=400)


def sibling_mount_us(*, tokens: int, depth: int) -> float:
    graph, thread = line(tokens=tokens, depth=depth)
    (source,) = graph.fork(thread)
    graph.append(source, [1, 2, 3])
    readers = [reader for _ in range(100) for reader in graph.fork(thread, 4)]
    graph.read_thread(readers[0], source)
    return quartile_us(lambda i: graph.read_thread(readers[i], source), repeats=400)


def far_mount_us(*, depth: int) -> float:
    """A reader and a source that share the root's first token only, each `depth` segments below it."""
    graph = Graph(limits=DEEP)
    root = graph.thread()
    graph.append(root, [1])
    ends = []
    for thread in graph.fork(root, 2):
        graph.append(thread, [1])
        for _ in range(depth - 1):
            (thread,) = graph.fork(thread)
            graph.append(thread, [1])
        ends.append(thread)
    readers = [reader for _ in range(100) for reader in graph.fork(ends[0], 4)]
    graph.read_thread(readers[0], ends[1])
    counts: list[int] = []
    cost = quartile_us(lambda i: counts.append(graph.read_thread(readers[i], ends[1])), repeats=400)
    assert set(counts[1:]) == {depth}
    return cost


def ratio(cost_us: Callable[..., float], small: dict[str, int], large: dict[str, int]) -> float:
    """Cost of the large case over the small one's; the best of three, since the machine may be busy."""
    return min(cost_us(**large) / cost_us(**small) for _ in range(3))


@pytest.mark.parametrize("cost_us", [fork_us, commit_us, sibling_mount_us])
def test_cost_does_not_grow_with_length_or_depth(cost_us: Callable[..., float]) -> None:
    """Catches: a copied table, a walk to the root, a digest that is hashed again from the start."""
    (short, long), (shallow, deep) = TOKENS, DEPTHS
    by_length = ratio(cost_us, {"tokens": short, "depth": 1}, {"tokens": long, "depth": 1})
    by_depth = ratio(cost_us, {"tokens": long, "depth": shallow}, {"tokens": long, "depth": deep})
    print(f"{cost_us.__name__}: {short} to {long} tokens x{by_length:.2f}, depth {shallow} to {deep} x{by_depth:.2f}")
    assert by_length < 1.5 and by_depth < 1.5


def test_a_far_mount_costs_next_to_nothing_a_level() -> None:
    """Catches: a walk of either path, or listing the parts of the mount before somebody asks."""
    shallow, deep = DEPTHS
    per_level_us = min((far_mount_us(depth=deep) - far_mount_us(depth=shallow)) / (deep - shallow) for _ in range(3))
    print(f"far mount: {per_level_us:.4f} us a level")
    assert per_level_us <= 0.01


def test_mounting_many_times_is_linear_at_worst() -> None:
    """Catches: a read that walks what was mounted by all reads before (the deep lines above have no mounts)."""
    graph = Graph()
    root = graph.thread()
    graph.append(root, [1])
    reader, source = graph.fork(root, 2)
    times = []
    for _ in pairwise(range(401)):
        graph.append(source, [1])
        start = time.perf_counter_ns()
        graph.read_thread(reader, source)
        times.append(time.perf_counter_ns() - start)
        graph.append(reader, [1])
    early, late = sorted(times[50:100])[10], sorted(times[350:])[10]
    assert late / early < 16  # 8 times as many mounts on the path
