"""The replay of a trace: every event against what came before."""

from __future__ import annotations

from collections.abc import Callable, Iterator

from octopus.verify.audits.audit import Audit
from octopus.verify.audits.traces import reading, waiting, writing
from octopus.verify.audits.traces.fields import event_faults, header_faults
from octopus.verify.audits.traces.pages import Pages
from octopus.verify.audits.traces.world import Event, Fault, Unknown, World
from octopus.verify.case import Case, known
from octopus.verify.findings import Finding, Witness
from octopus.verify.rules import finding

Handler = Callable[[World, Event], Iterator[Fault]]

HANDLERS: dict[str, Handler] = {
    "thread": writing.on_thread,
    "adopt": writing.on_adopt,
    "fork": writing.on_fork,
    "open": writing.on_open,
    "append": writing.on_append,
    "mark": writing.on_mark,
    "turn": writing.on_turn,
    "rewind": writing.on_rewind,
    "commit": writing.on_commit,
    "read": reading.on_read,
    "wait": waiting.on_wait,
    "resume": waiting.on_resume,
    "cancel": waiting.on_cancel,
    "fail": waiting.on_fail,
    "drop": waiting.on_drop,
}


def faults(events: tuple[Event, ...]) -> Iterator[tuple[int, Fault]]:
    """`(index of the event, fault)` of a whole trace, in order; the header is event 0."""
    yield from ((0, fault) for fault in header_faults(events))
    world, pages, order = World(), Pages(), 0
    for index, event in enumerate(events):
        if event.get("kind") == "header":
            continue
        own = [*event_faults(event, order)]
        yield from ((index, fault) for fault in own)
        number = event.get("order")
        order = number if isinstance(number, int) else order + 1
        if any(fault.code == "OCT601" for fault in own):
            continue
        yield from ((index, fault) for fault in _replayed(world, pages, event))
    yield from ((max(len(events) - 1, 0), fault) for fault in pages.at_end(world))


def trace(case: Case) -> Iterator[Finding]:
    """OCT6xx and the part of OCT7xx that events can show: one finding for each kind of fault, at its first event."""
    found = known(case.subject.events)
    first: dict[tuple[str, ...], tuple[int, Fault]] = {}
    counts: dict[tuple[str, ...], int] = {}
    for index, fault in faults(found.events):
        key = (fault.code, *fault.about)
        first.setdefault(key, (index, fault))
        counts[key] = counts.get(key, 0) + 1
    for key, (index, fault) in first.items():
        line = found.lines[index] if index < len(found.lines) else 1
        event = found.events[index] if index < len(found.events) else {}
        yield finding(
            fault.code,
            fault.message,
            subject=case.subject,
            count=counts[key],
            witness=Witness(actual=f"event {event.get('order', 0)}: {event.get('kind', 'none')}"),
            severity=fault.severity,
            segments=fault.about,
            line=line,
        )




def _replayed(world: World, pages: Pages, event: Event) -> Iterator[Fault]:
    try:
        yield from waiting.actor_faults(world, event)
        yield from pages.on_event(event)
        handler = HANDLERS.get(event["kind"])
        if handler is not None:
            yield from handler(world, event)
    except Unknown as unknown:
        yield Fault("OCT601", f"{event['kind']}: {unknown}", ("unknown name",))


AUDITS = (
    Audit(
        name="trace",
        codes=(
            *(f"OCT{number}" for number in range(601, 615)),
            *("OCT702", "OCT701", "OCT703", "OCT704", "OCT705", "OCT706", "OCT707", "OCT708", "OCT709"),
        ),
        needs=("events",),
        run=trace,
    ),
)
