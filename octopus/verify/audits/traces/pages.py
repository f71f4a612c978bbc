"""Events of a page pool: who holds which page, what is written where, and what comes back from another tier."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from octopus.verify.audits.pools import pool_faults
from octopus.verify.audits.traces.world import Event, Fault, World
from octopus.verify.facets import PoolPage, PoolState

FRUITLESS = 3
"""Preemptions without a token in between that are still borne."""


@dataclass(kw_only=True, slots=True, eq=False)
class TracedPage:
    """A page since it was last allocated; `slots` are the ranges written since then, with their writers."""

    generation: int
    owner: int | None
    holders: int = 1
    free: bool = False
    content: str | None = None
    slots: list[tuple[int, int, int]] = field(default_factory=list)


@dataclass(kw_only=True, slots=True, eq=False)
class Pages:
    """All pages that the trace has named, and who was preempted how often without writing.

    `cached` are those that the last state of the pool says are kept in case somebody asks for them.
    """

    pages: dict[int, TracedPage] = field(default_factory=dict)
    cached: frozenset[int] = frozenset()
    preempted: dict[int, int] = field(default_factory=dict)

    def on_event(self, event: Event) -> Iterator[Fault]:
        """Faults of one event, of any kind."""
        kind = event["kind"]
        if kind == "page":
            yield from self._page(event)
        elif kind == "pool":
            yield from self._pool(event)
        elif kind == "append":
            self.preempted.pop(event["thread"], None)
        elif kind == "preempt":
            times = self.preempted.get(event["thread"], 0) + 1
            self.preempted[event["thread"]] = times
            if times == FRUITLESS + 1:
                message = f"thread {event['thread']} is preempted {times} times without writing a token"
                yield Fault("OCT613", message, ("preempt",))

    def at_end(self, world: World) -> Iterator[Fault]:
        """What is left when everybody has gone."""
        held = [number for number, page in self.pages.items() if not page.free and number not in self.cached]
        if held and all(thread.dropped for thread in world.threads.values()):
            yield Fault("OCT610", f"all threads were dropped, {len(held)} pages are held, the first is {held[0]}")

    def _page(self, event: Event) -> Iterator[Fault]:
        number, op, generation = event["page"], event["op"], event["generation"]
        page = self.pages.get(number)
        if op == "allocate":
            if page is not None and not page.free:
                yield Fault("OCT702", f"page {number} is allocated while it is held", ("allocate",))
            if page is not None and generation <= page.generation:
                message = f"page {number} is allocated as generation {generation} after {page.generation}"
                yield Fault("OCT709", message, ("allocate",))
            self.pages[number] = TracedPage(generation=generation, owner=event.get("thread"))
            return
        if page is None or page.free or generation != page.generation:
            now = "was never allocated" if page is None else "is free" if page.free else f"is {page.generation}"
            message = f"{op} of page {number} as generation {generation}, which {now}"
            yield Fault("OCT609", message, (op,))
            return
        if op == "share":
            page.holders += 1
        elif op == "release":
            page.holders -= 1
            page.free = page.holders == 0
        elif op == "write":
            yield from _write(event, page)
        else:
            yield from _compare(event, page)

    def _pool(self, event: Event) -> Iterator[Fault]:
        """The state of the whole pool: by itself, and against what was allocated and released so far."""
        try:
            state = _pool_state(event)
            self.cached = frozenset(map(int, event.get("cached", ())))
        except (KeyError, TypeError, ValueError) as error:
            yield Fault("OCT601", f"the pool event cannot be used: {error}", ("pool",))
            return
        for code, message, about in pool_faults(state):
            yield Fault(code, message, about)
        counted = {page.page: page.generation for page in state.pages if page.count}
        for number, page in self.pages.items():
            held = number in counted if page.free else counted.get(number) == page.generation
            if held == page.free:
                was, counts = ("released", "held") if held else ("allocated", "not held")
                message = f"generation {page.generation} of page {number} was {was}, the pool counts it as {counts}"
                yield Fault("OCT702", message, ("events and pool",))


def _write(event: Event, page: TracedPage) -> Iterator[Fault]:
    if "thread" not in event:
        yield Fault("OCT601", f"the write of page {event['page']} has no thread", ("page", "thread"))
        return
    start, stop, writer = event.get("start", 0), event.get("stop", 0), event["thread"]
    taken = any(start < other_stop and other_start < stop for other_start, other_stop, _ in page.slots)
    where = f"slots [{start}, {stop}) of page {event['page']}"
    others = {other for _, _, other in page.slots} - {writer}
    if page.holders > 1 and (taken or writer != page.owner):
        yield Fault("OCT608", f"thread {writer} writes {where}, which {page.holders} hold", ("shared",))
    elif taken:
        yield Fault("OCT704", f"{where} are written a second time", ("twice",))
    elif others:
        yield Fault("OCT704", f"threads {writer} and {min(others)} both write page {event['page']}", ("writers",))
    page.slots.append((start, stop, writer))
    page.content = event.get("hash")


def _compare(event: Event, page: TracedPage) -> Iterator[Fault]:
    """`offload`, `restore` and `read` say what they found on the page."""
    found = event.get("hash")
    if found is not None and page.content is not None and found != page.content:
        code = "OCT703" if event["op"] == "read" else "OCT612"
        message = f"{event['op']} of page {event['page']} finds {str(found)[:12]}, written was {page.content[:12]}"
        yield Fault(code, message, (event["op"],))
    page.content = found if found is not None else page.content


def _pool_state(event: Mapping[str, Any]) -> PoolState:
    pages = [
        PoolPage(
            page=int(page["page"]),
            generation=int(page.get("generation", 0)),
            count=int(page["count"]),
            holders=tuple(map(str, page["holders"])),
        )
        for page in event["pages"]
    ]
    return PoolState(
        capacity=event["capacity"],
        pages=tuple(pages),
        free=tuple(event["free"]),
        fenced=tuple(event.get("fenced", ())),
        loading=tuple(event.get("loading", ())),
        metrics=event.get("metrics"),
    )
