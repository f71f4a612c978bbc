"""What happened in a graph, in order: plain tuples while it happens, JSON lines when somebody asks.

The format is documented in docs/trace.md.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

SCHEMA_VERSION = 1

FIELDS: dict[str, tuple[str, ...]] = {
    "thread": ("thread", "segment"),
    "adopt": ("thread", "segment", "length"),
    "fork": ("parent", "children", "segment", "length"),
    "open": ("segment", "thread", "parent_segment", "parent_length", "start_position"),
    "append": ("thread", "segment", "start", "tokens"),
    "read": ("reader", "source", "snapshot_version", "segment", "start_position", "parts", "last", "placement"),
    "wait": ("thread", "awaited", "mode", "until", "timeout_s"),
    "resume": ("thread", "segment", "length", "statuses", "timed_out"),
    "wait_edge": ("waiter_segment", "waiter_length", "awaited_segment", "awaited_length"),
    "mark": ("thread", "segment", "length"),
    "turn": ("thread", "segment", "length"),
    "rewind": ("thread", "from_segment", "from_length", "segment", "length"),
    "commit": ("thread", "segment", "length", "version", "digest", "span", "keep_running"),
    "cancel": ("thread",),
    "fail": ("thread", "reason"),
    "drop": ("thread",),
    "weights": ("version",),
}
"""The fields of each kind of event, after its order number."""


class Trace:
    """A growing list of events `(order, kind, *fields)`. Recording costs one tuple; encoding comes later."""

    __slots__ = ("events",)

    def __init__(self) -> None:
        self.events: list[tuple[Any, ...]] = []

    def json_lines(self) -> Iterator[str]:
        """The header line, then one JSON object an event."""
        yield json.dumps({"kind": "header", "schema_version": SCHEMA_VERSION, "events": len(self.events)})
        yield from (json.dumps(encoded_event(event)) for event in self.events)


def encoded_event(event: tuple[Any, ...]) -> dict[str, Any]:
    """The JSON object of one event."""
    order, kind, *values = event
    return {"order": order, "kind": kind, **dict(zip(FIELDS[kind], map(_plain, values), strict=True))}


def _plain(value: Any) -> Any:
    """A JSON value: digests as hexadecimal, mounts as their parts `[segment, start, stop, shift]`."""
    if isinstance(value, bytes):
        return value.hex()
    if hasattr(value, "parts"):
        return [[part.segment.index, part.start, part.stop, part.shift] for part in value.parts]
    return [_plain(one) for one in value] if isinstance(value, list | tuple | range) else value
