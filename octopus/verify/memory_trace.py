"""Records what a graph's page pool does, between the events of its trace, for `octopus-verify trace`.

Everything is taken from the outside: from the calls that the pool gets, and from the page lists of the segments. So it
is not the accounting that the graph keeps of itself, and a graph that nobody records is not slowed.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Sequence
from typing import Any, NamedTuple

from octopus.core.graph import Graph
from octopus.core.pool import NO_PAGE, PagePool, unit_of
from octopus.core.retention import Retention
from octopus.core.segment import Segment

Note = Callable[[str, Sequence[int]], None]


class MemoryEvent(NamedTuple):
    """Something that happened after so many events of the trace."""

    after: int
    kind: str
    fields: dict[str, Any]


class MemoryTrace:
    """The memory events of one graph, from the moment at which it is made.

    `MemoryTrace(engine.graph)`, then use the engine, then write `json_lines()` to a file. The state of the whole pool
    is recorded at the end of every step, where `snapshot` is called, and at the end.
    """

    def __init__(self, graph: Graph) -> None:
        """Puts a pool that tells of its calls in the place of the graph's. Raises ValueError without pool or trace."""
        pool, trace = graph.retention.pages, graph.trace
        if pool is None or trace is None:
            raise ValueError("memory is recorded for a graph with a page pool and a trace: Graph(pages=..., trace=...)")
        self.graph = graph
        self._trace = trace
        self._events: list[MemoryEvent] = []
        self._computed: dict[Segment, int] = {}
        with graph.lock:
            self._pool = graph.retention.pages = _ToldPool(pool, self._note, self.snapshot)
            self._note("allocate", sorted(self._pool.live))

    def snapshot(self) -> None:
        """Records what was written since the last time, and who holds which page now."""
        with self.graph.lock:
            self._write_events()
            self._add("pool", **pool_fields(self.graph, self._pool))

    def json_lines(self) -> Iterator[str]:
        """The trace and the memory events as one trace, in which order numbers count both."""
        with self.graph.lock:
            self.snapshot()
            trace, memory = [json.loads(line) for line in self._trace.json_lines()], list(self._events)
        header, events = trace[0], trace[1:]
        yield json.dumps({**header, "events": len(events) + len(memory)})
        order, told = 0, 0
        for seen in range(len(events) + 1):
            while told < len(memory) and memory[told].after == seen:
                order, told = order + 1, told + 1
                yield json.dumps({"order": order, "kind": memory[told - 1].kind, **memory[told - 1].fields})
            if seen < len(events):
                order = events[seen]["order"] + told  # What the trace itself leaves out stays left out.
                yield json.dumps({**events[seen], "order": order})

    def _note(self, op: str, handles: Sequence[int]) -> None:
        for handle in handles:
            self._add("page", op=op, **_page(handle))

    def _write_events(self) -> None:
        """Computed tokens are written ones; a segment that has lost some begins behind those that are left."""
        size = self._pool.page_size
        for segment in self.graph.retention.segments.values():
            at, stop = min(self._computed.get(segment, 0), segment.computed), segment.computed
            self._computed[segment] = stop
            while at < stop:
                end = min(stop, (at // size + 1) * size)
                handle = segment.pages[at // size]
                if handle != NO_PAGE:  # Else it was given back within the same step.
                    first = at // size * size
                    self._add(
                        "page", op="write", **_page(handle), thread=segment.writer, start=at - first, stop=end - first
                    )
                at = end

    def _add(self, kind: str, **fields: Any) -> None:
        self._events.append(MemoryEvent(len(self._trace.events), kind, fields))


class _ToldPool(PagePool):
    """Goes on where another pool stands, and tells of every allocation and release, and of the end of every step."""

    __slots__ = ("_ended", "_note")

    def __init__(self, pool: PagePool, note: Note, ended: Callable[[], None]) -> None:
        super().__init__(pool.capacity, page_size=pool.page_size)
        self._free, self._live, self._fenced = pool._free, pool._live, pool._fenced
        self._fences = pool._fences
        self._note, self._ended = note, ended

    @property
    def live(self) -> set[int]:
        """Handles that are given out."""
        return self._live

    def units(self) -> tuple[list[int], list[int]]:
        """The pages in the free list, and those behind the fence."""
        return [unit_of(handle) for handle in self._free], [unit_of(handle) for handle in self._fenced]

    def allocate(self, count: int) -> list[int]:
        handles = super().allocate(count)
        self._note("allocate", handles)
        return handles

    def release(self, handles: Sequence[int]) -> None:
        super().release(handles)
        self._note("release", handles)

    def lift(self) -> None:
        super().lift()
        if not self._fences:
            self._ended()


def pool_fields(graph: Graph, pool: _ToldPool) -> dict[str, Any]:
    """The `pool` event of this moment: each page that the pool has given out or that somebody holds."""
    holders = _holders(graph.retention)
    counts = dict.fromkeys(pool.live, 1)
    free, fenced = pool.units()
    stats = graph.stats().pages
    return {
        "capacity": pool.capacity,
        "free": free,
        "fenced": fenced,
        "pages": [
            {**_page(handle), "count": counts.get(handle, 0), "holders": holders.get(handle, [])}
            for handle in sorted({*counts, *holders})
        ],
        "cached": [unit_of(h) for segment in _cached(graph.retention) for h in segment.pages if h != NO_PAGE],
        "metrics": {"capacity": stats.capacity, "used": stats.used, "free": stats.free},
    }


def _holders(retention: Retention) -> dict[int, list[str]]:
    """By handle, the segments that list it, and the copies under way that own it."""
    holders: dict[int, list[str]] = {}
    for segment in retention.segments.values():
        for handle in segment.pages:
            if handle != NO_PAGE:
                holders.setdefault(handle, []).append(f"segment {segment.index}")
    for segment, transfer in retention.swapping.moving.items():
        for index, (here, _) in transfer.pages.items():
            if transfer.kind == "restore" or index in transfer.adopted_pages:
                holders.setdefault(here, []).append(f"{transfer.kind} of segment {segment.index}")
    return holders


def _cached(retention: Retention) -> list[Segment]:
    """The segments on which no thread rests, neither directly nor through others: what `trim` would forget."""
    threads, pins = retention.threads.values(), retention.step.pins if retention.step is not None else []
    rests = [thread.cursor.segment for thread in threads if not thread.status.terminal]
    rests += [snapshot.cursor.segment for thread in threads for snapshot in thread.snapshots.values()]
    rests += [cursor.segment for cursor in pins]
    needed: set[Segment] = set()
    while rests:
        segment = rests.pop()
        if segment not in needed:
            needed.add(segment)
            rests += [mount.source.segment for mount in segment.mounts]
            rests += [] if segment.parent is None else [segment.parent.segment]
    return [segment for segment in retention.segments.values() if segment not in needed]


def _page(handle: int) -> dict[str, int]:
    return {"page": unit_of(handle), "generation": handle >> 32}
