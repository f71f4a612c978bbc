"""Waiting for a `Wait` from outside: in an event loop, or by blocking a Python thread."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from typing import TYPE_CHECKING

from octopus.core.waits import Wait

if TYPE_CHECKING:
    from octopus.core.graph import Graph

_SOONEST_S = 0.001
"""How long to sleep at least before looking at a deadline again: clocks differ."""


async def settled(graph: Graph, wait: Wait) -> Wait:
    """`wait` once it is done. If the task is cancelled meanwhile, the wait is withdrawn."""
    loop = asyncio.get_running_loop()
    event = asyncio.Event()

    def wake(_: Wait) -> None:
        if not loop.is_closed():
            loop.call_soon_threadsafe(event.set)

    when_done(graph, wait, wake)
    try:
        while not wait.done:
            try:
                await asyncio.wait_for(event.wait(), _remaining_s(graph, wait))
            except TimeoutError:
                graph.expire_waits()
    finally:
        graph.withdraw(wait)
    return wait


def waited_for(graph: Graph, wait: Wait, timeout_s: float | None) -> bool:
    """Blocks until `wait` is done, at most `timeout_s`; whether it is."""
    event = threading.Event()
    when_done(graph, wait, lambda _: event.set())
    remaining_s = _remaining_s(graph, wait)
    if remaining_s is None or (timeout_s is not None and timeout_s < remaining_s):
        return event.wait(timeout_s)
    while not event.wait(_remaining_s(graph, wait)):
        graph.expire_waits()
    return True


def when_done(graph: Graph, wait: Wait, callback: Callable[[Wait], object]) -> None:
    """Has `callback` called with the wait when it is done; at once if it is."""
    with graph.lock:
        if wait.done:
            callback(wait)
        else:
            wait.callbacks.append(callback)


def _remaining_s(graph: Graph, wait: Wait) -> float | None:
    return None if wait.deadline_s is None else max(_SOONEST_S, wait.deadline_s - graph.clock_s())
