"""A sound dump of everything that needs no model: the episode in which the faults of dumps are planted."""

from __future__ import annotations

import json

from octopus.core.graph import Graph
from octopus.core.pool import PagePool
from octopus.core.trace import Trace
from octopus.verify.facets import Heads, PoolPage, PoolState
from octopus.verify.subject import Events, Subject


def clean_dump() -> Subject:
    """A trace with reads, a wait, a commit and a cancellation; a page pool; heads."""
    return Subject(
        name="dump",
        length=0,
        heads=Heads(query=8, key_value=2, dim=16, tensor_parallel=4, rank_heads=((0,), (0,), (1,), (1,))),
        pool=_pool(),
        events=_events(),
    )


def _events() -> Events:
    trace = Trace()
    graph = Graph(trace=trace)
    root = graph.thread()
    graph.append(root, [1, 2, 3, 4])
    writer, reader, late = graph.fork(root, 3)
    graph.append(writer, [5, 6])
    graph.append(late, [7])
    graph.read_thread(reader, late)
    graph.append(reader, [8])
    graph.cancel(late)
    graph.wait_threads(root, [writer])
    graph.append(writer, [9])
    graph.commit(writer)
    graph.read_thread(root, writer)
    graph.append(root, [10, 11])
    events = tuple(json.loads(line) for line in trace.json_lines())
    return Events(events=events, lines=tuple(range(1, len(events) + 1)))


def _pool() -> PoolState:
    """Two segments share a page; a third has its own; the rest is free."""
    pool = PagePool(6, page_size=4)
    shared, own = pool.allocate(2)
    units = [(pool.unit(shared), ("segment 0", "segment 1")), (pool.unit(own), ("segment 2",))]
    held = {unit for unit, _ in units}
    return PoolState(
        capacity=pool.capacity,
        pages=tuple(
            PoolPage(page=unit, generation=0, count=len(holders), holders=holders) for unit, holders in units
        ),
        free=tuple(unit for unit in range(pool.capacity) if unit not in held),
        metrics={"used": pool.used, "free": pool.free},
    )
