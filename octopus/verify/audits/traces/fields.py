"""OCT601 and OCT602: whether the trace is one, and whole."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

from octopus.verify.audits.traces.world import Event, Fault
from octopus.verify.findings import Severity

VERSION = 1
MAX_LENGTH = 2**40
"""No segment, thread or position has a larger number."""


def _count(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and 0 <= value < MAX_LENGTH


def _counts(value: Any) -> bool:
    return isinstance(value, list) and all(map(_count, value))


def _text(value: Any) -> bool:
    return isinstance(value, str)


def _flag(value: Any) -> bool:
    return isinstance(value, bool)


def _parts(value: Any) -> bool:
    return isinstance(value, list) and all(
        isinstance(part, list)
        and len(part) == 4
        and _counts(part[:3])
        and isinstance(part[3], int)
        and part[1] < part[2]
        for part in value
    )


def _span(value: Any) -> bool:
    return value is None or (_counts(value) and len(value) == 2)


def _statuses(value: Any) -> bool:
    return isinstance(value, list) and all(
        isinstance(pair, list) and len(pair) == 2 and _count(pair[0]) and _text(pair[1]) for pair in value
    )


def _anything(value: Any) -> bool:
    return True


Check = Callable[[Any], bool]

FIELDS: dict[str, dict[str, Check]] = {
    "thread": {"thread": _count, "segment": _count},
    "adopt": {"thread": _count, "segment": _count, "length": _count},
    "fork": {"parent": _count, "children": _counts, "segment": _count, "length": _count},
    "open": {
        "segment": _count, "thread": _count, "parent_segment": _count, "parent_length": _count,
        "start_position": _count,
    },
    "append": {"thread": _count, "segment": _count, "start": _count, "tokens": _counts},
    "read": {
        "reader": _count, "source": _count, "snapshot_version": _count, "segment": _count,
        "start_position": _count, "parts": _parts,
    },
    "wait": {"thread": _count, "awaited": _counts, "mode": _text, "until": _text, "timeout_s": _anything},
    "resume": {"thread": _count, "segment": _count, "length": _count, "statuses": _statuses, "timed_out": _flag},
    "wait_edge": {
        "waiter_segment": _count, "waiter_length": _count, "awaited_segment": _count, "awaited_length": _count,
    },
    "mark": {"thread": _count, "segment": _count, "length": _count},
    "turn": {"thread": _count, "segment": _count, "length": _count},
    "rewind": {
        "thread": _count, "from_segment": _count, "from_length": _count, "segment": _count, "length": _count,
    },
    "commit": {
        "thread": _count, "segment": _count, "length": _count, "version": _count, "digest": _text,
        "span": _span, "keep_running": _flag,
    },
    "cancel": {"thread": _count},
    "fail": {"thread": _count, "reason": _anything},
    "drop": {"thread": _count},
    "weights": {"version": _count},
    "preempt": {"thread": _count},
    "page": {"op": _text, "page": _count, "generation": _count},
    "pool": {"capacity": _count, "free": _counts, "pages": lambda value: isinstance(value, list)},
}  # fmt: skip
"""The fields that each kind of event must have. More are legal, and so are kinds that are not here."""


def header_faults(events: tuple[Event, ...]) -> Iterator[Fault]:
    """The first line, and whether all came that it promises."""
    first = events[0] if events else {}
    if first.get("kind") != "header":
        yield Fault("OCT601", "the trace has no header line")
        return
    if first.get("schema_version") != VERSION:
        yield Fault("OCT601", f"the trace is of version {first.get('schema_version')!r}, known is {VERSION}")
    promised = first.get("events")
    if _count(promised) and promised != len(events) - 1:
        yield Fault("OCT602", f"the header promises {promised} events, {len(events) - 1} came", ("header",))


def event_faults(event: Event, order_before: int) -> Iterator[Fault]:
    """One event by itself, and its number against that of the one before."""
    kind, order = event.get("kind"), event.get("order")
    if not isinstance(kind, str) or kind not in FIELDS:
        yield Fault("OCT601", f"events of kind {kind!r} are not known", ("kind",), Severity.WARNING)
    else:
        for name, good in FIELDS[kind].items():
            if name not in event:
                yield Fault("OCT601", f"the {kind} event has no {name}", (kind, name))
            elif not good(event[name]):
                yield Fault("OCT601", f"the {name} of the {kind} event is {str(event[name])[:40]}", (kind, name))
    if not isinstance(order, int) or isinstance(order, bool):
        yield Fault("OCT601", f"the event has no order number, but {order!r}", ("order",))
    elif order != order_before + 1:
        what = "runs backwards" if order <= order_before else "leaves a gap"
        yield Fault("OCT602", f"order {order} follows {order_before}: it {what}", (what,))
