"""Runs a trace again: the same calls, in a graph that only records, compared event by event.

Memory is no part of a trace: what was computed, evicted or moved does not change what anybody sees.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from typing import Any

from octopus.core.cursor import Cursor
from octopus.core.errors import invariant
from octopus.core.graph import Graph
from octopus.core.limits import Limits
from octopus.core.segment import Segment
from octopus.core.thread import Mark, Thread
from octopus.core.trace import Trace, encoded_event

CALLS = frozenset({
    "thread", "adopt", "fork", "append", "read", "wait", "resume", "mark", "turn", "rewind", "commit", "cancel", "fail",
    "drop", "weights",
})  # fmt: skip
"""Kinds of events that are made by a call of the graph."""


def replay(lines: Iterable[str]) -> Graph:
    """The graph after the calls of a trace, given as its JSON lines.

    Raises InvariantViolation at the first event that does not happen again as it did.
    """
    events = [json.loads(line) for line in lines]
    invariant(bool(events) and events[0]["kind"] == "header", "a trace begins with its header")
    replayer = _Replayer()
    for place, event in enumerate(events[1:], start=1):
        replayer.reach(event, events[place + 1] if place + 1 < len(events) else None)
    return replayer.graph


class _Replayer:
    """Calls whatever led to an event, unless an earlier call has led to it already."""

    def __init__(self) -> None:
        self.trace = Trace()
        limits = Limits(fan_out=1 << 30, depth=1 << 30)  # What was allowed then is allowed now.
        self.graph = Graph(trace=self.trace, limits=limits, clock_s=lambda: 0.0)
        self._threads: dict[int, Thread] = {}
        self._reached = 0

    def reach(self, event: dict[str, Any], following: dict[str, Any] | None) -> None:
        """Sees to it that `event` is the next in the new trace. A segment is opened by the call behind the next."""
        if self._reached == len(self.trace.events):
            cause = following if event["kind"] == "open" and following is not None else event
            invariant(cause["kind"] in CALLS, f"no call leads to an event of kind {cause['kind']!r}")
            getattr(self, f"_{cause['kind']}")(**{k: v for k, v in cause.items() if k not in ("order", "kind")})
            self._threads |= self.graph.retention.threads
        happened = len(self.trace.events) > self._reached
        again = encoded_event(self.trace.events[self._reached]) if happened else None
        invariant(again == event, f"the trace says {event}, and now it is {again}")
        self._reached += 1

    def _segment(self, index: int) -> Segment:
        return self.graph.retention.segments[index]

    def _thread(self, **_: Any) -> None:
        self.graph.thread()

    def _adopt(self, thread: int, segment: int, length: int) -> None:
        self.graph.begin_at(Cursor(self._segment(segment), length), priority=0)

    def _fork(self, parent: int, children: list[int], segment: int, length: int) -> None:
        source = self._threads[parent]
        place = Cursor(self._segment(segment), length)
        snapshots = [one for one in source.snapshots.values() if one.cursor == place]
        stands = source.cursor == place and not source.status.terminal
        self.graph.fork(source if stands else snapshots[0], len(children))

    def _append(self, thread: int, tokens: list[int], **_: Any) -> None:
        self.graph.append(self._threads[thread], tokens)

    def _read(self, reader: int, source: int, last: int | None, placement: Any, **_: Any) -> None:
        self.graph.read_thread(self._threads[reader], self._threads[source], last=last, placement=placement)

    def _wait(self, thread: int, awaited: list[int], mode: Any, until: Any, timeout_s: float | None) -> None:
        others = [self._threads[other] for other in awaited]
        self.graph.wait_threads(self._threads[thread], others, mode=mode, until=until, timeout_s=timeout_s)

    def _resume(self, thread: int, **_: Any) -> None:
        wait = self._threads[thread].wait
        if wait is not None:
            self.graph.withdraw(wait)

    def _mark(self, thread: int, **_: Any) -> None:
        self.graph.mark(self._threads[thread])

    def _turn(self, thread: int, **_: Any) -> None:
        self.graph.end_turn(self._threads[thread])

    def _rewind(self, thread: int, segment: int, length: int, **_: Any) -> None:
        mover, place = self._threads[thread], Cursor(self._segment(segment), length)
        snapshots = [one for one in mover.snapshots.values() if one.cursor == place]
        self.graph.rewind(mover, snapshots[0] if snapshots else Mark(thread=mover, cursor=place))

    def _commit(self, thread: int, span: list[int] | None, keep_running: bool, **_: Any) -> None:
        pair = None if span is None else (span[0], span[1])
        self.graph.commit(self._threads[thread], span=pair, keep_running=keep_running)

    def _cancel(self, thread: int) -> None:
        self.graph.cancel(self._threads[thread])

    def _fail(self, thread: int, reason: str) -> None:
        self.graph.fail(self._threads[thread], reason)

    def _drop(self, thread: int) -> None:
        self.graph.drop(self._threads[thread])

    def _weights(self, version: int) -> None:
        self.graph.advance_weights()
