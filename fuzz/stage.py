"""A small store for concurrent threads: its locks and its inner events are points of a scheduler."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from fuzz.copier import FuzzCopier
from fuzz.device import Memory
from fuzz.engine import Engine
from fuzz.locks import standing_in
from fuzz.operations import PAGE
from fuzz.scheduler import Scheduler
from octopus.core.errors import CapacityExceeded, OctopusError, StillLoading
from octopus.core.graph import Graph
from octopus.core.host import HostTier
from octopus.core.pool import PagePool, StatePool
from octopus.core.segment import Segment
from octopus.core.thread import Thread
from octopus.core.trace import Trace

MOST_TOKENS = 10_000


def uids_by_place(segment: Segment, start: int, stop: int) -> list[int]:
    """Names for the tokens of a segment that need no bookkeeping."""
    return [segment.index * MOST_TOKENS + offset for offset in range(start, stop)]


class WatchedPages(PagePool):
    """A page pool whose calls are points."""

    def __init__(self, capacity: int, *, scheduler: Scheduler) -> None:
        super().__init__(capacity, page_size=PAGE)
        self._scheduler = scheduler

    def allocate(self, count: int) -> list[int]:
        """As the pool does, after a point."""
        self._scheduler.point("allocate")
        return super().allocate(count)


class WatchedEvents(list[tuple[Any, ...]]):
    """The events of a trace; each is a point."""

    def __init__(self, scheduler: Scheduler) -> None:
        super().__init__()
        self._scheduler = scheduler

    def append(self, event: tuple[Any, ...]) -> None:
        """Keeps the event, before a point."""
        super().append(event)
        self._scheduler.point(str(event[1]))


class Stage:
    """A graph with pages, perhaps states and a host tier, and an engine. Built by the scenario before its bodies run.

    With `patient`, who needs a copy's outcome waits for it, until nobody else can go on.
    """

    def __init__(
        self,
        scheduler: Scheduler,
        *,
        pages: int = 16,
        states: int = 0,
        host_pages: int = 0,
        prompt: bool = True,
        patient: bool = False,
    ) -> None:
        self.pages = WatchedPages(pages, scheduler=scheduler)
        device = Memory(pages=pages, page_size=PAGE, states=states)
        self.copier = FuzzCopier(device, Memory(pages=host_pages, page_size=PAGE, states=0), prompt=prompt)
        trace = Trace()
        trace.events = WatchedEvents(scheduler)
        with standing_in(scheduler):
            timeout_s = 1.0 if patient else 0.0
            host = HostTier(pages=host_pages, copier=self.copier, timeout_s=timeout_s) if host_pages else None
            self.graph = Graph(
                pages=self.pages, states=StatePool(states) if states else None, trace=trace, host=host
            )
        self.engine = Engine(self.graph, device, uids_by_place)

    def line(self, tokens: int, *, computed: bool = True) -> Thread:
        """A root with so many tokens."""
        thread = self.graph.thread()
        self.graph.append(thread, [1] * tokens)
        if computed:
            self.engine.compute([thread])
        return thread

    def attempt(self, *calls: Callable[[], object]) -> Callable[[], None]:
        """A body that makes the calls one after the other. The world's errors are what the others may cause."""

        def body() -> None:
            for call in calls:
                try:
                    call()
                except OctopusError:
                    continue

        return body

    def come_to_rest(self) -> None:
        """Audits, and demands that everything is given back once everybody has gone."""
        self.copier.deliver_all()
        self.copier.prompt = True
        self.graph.audit()
        for thread in reversed(self.graph.threads):
            self._finish(thread)
            self.graph.drop(thread)
        self.graph.trim()
        self.graph.audit()
        assert not self.graph.segments and not self.graph.transfers
        stats = self.graph.stats()
        for figures in (stats.pages, stats.states, stats.host_pages):
            assert figures.free == figures.capacity, f"{figures} when everybody has gone"

    def _finish(self, thread: Thread) -> None:
        """A thread that still runs must be able to go on, and must see what was written."""
        if thread.status.value == "running":
            try:
                self.engine.compute([thread])
            except (CapacityExceeded, StillLoading):
                return
            self.engine.check_view(thread.cursor)
            self.graph.commit(thread)
