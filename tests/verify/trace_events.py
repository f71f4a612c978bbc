"""Traces for the tests: those that a graph really writes, and ways to change one event."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable
from typing import Any

from octopus.core.graph import Graph
from octopus.core.trace import Trace
from octopus.verify.audits import STATIC, run
from octopus.verify.audits.traces import trace_subject
from octopus.verify.findings import Finding
from octopus.verify.subject import Events, Subject

Event = dict[str, Any]


def traced(play: Callable[[Graph], None]) -> list[Event]:
    """The header and the events of what a function does to a graph."""
    trace = Trace()
    play(Graph(trace=trace))
    return [json.loads(line) for line in trace.json_lines()]


def family(graph: Graph) -> None:
    """A root of 3 forks two children; both write, one commits, the root waits for it, reads it and goes on."""
    root = graph.thread()
    graph.append(root, [5, 6, 7])
    one, two = graph.fork(root, 2)
    graph.append(one, [8, 9])
    graph.append(two, [10])
    graph.wait_threads(root, [one])
    graph.commit(one)
    graph.read_thread(root, one)
    graph.append(root, [11, 12])
    graph.read_thread(two, root, last=1)
    graph.append(two, [13])
    for thread in (root, one, two):
        graph.drop(thread)


def subject(events: Iterable[Event], *, renumber: bool = True) -> Subject:
    """A trace as a subject; orders are counted anew unless they are what is wrong."""
    listed = [dict(event) for event in events]
    if renumber:
        for order, event in enumerate(listed):
            if event.get("kind") == "header":
                event["events"] = len(listed) - 1
            else:
                event["order"] = order
    return Subject(name="t", length=0, events=Events(events=tuple(listed), lines=tuple(range(1, len(listed) + 1))))


def audit(events: Iterable[Event], *, renumber: bool = True) -> list[Finding]:
    """All findings about a trace and the rows that follow from it."""
    one = subject(events, renumber=renumber)
    rows = trace_subject(one)
    return list(run(STATIC, [one] if rows is None else [one, rows]).findings)


def index(events: list[Event], kind: str, number: int = 0) -> int:
    """Where the event of a kind stands."""
    return [place for place, event in enumerate(events) if event["kind"] == kind][number]


def with_changed(events: list[Event], kind: str, number: int = 0, **fields: Any) -> list[Event]:
    """The events, one of them with other fields."""
    at = index(events, kind, number)
    return [*events[:at], {**events[at], **fields}, *events[at + 1 :]]


def with_event(events: list[Event], after: int, kind: str, **fields: Any) -> list[Event]:
    """The events with another one behind the one at `after`."""
    return [*events[: after + 1], {"kind": kind, **fields}, *events[after + 1 :]]
