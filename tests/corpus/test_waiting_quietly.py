"""Waits with a deadline: they sleep until it, and not in a loop of glances at the clock."""

from __future__ import annotations

import asyncio
import time

from octopus.core.graph import Graph

PATIENCE_S = 0.15
FEW_GLANCES = 10


class CountingClock:
    """Real time, and how often it was asked for."""

    def __init__(self) -> None:
        self.glances = 0

    def __call__(self) -> float:
        """The time, in seconds."""
        self.glances += 1
        return time.monotonic()


def test_a_blocked_thread_sleeps_until_its_deadline() -> None:
    """Catches: a wait that polls."""
    clock = CountingClock()
    graph = Graph(clock_s=clock)
    one, other = graph.thread(), graph.thread()
    began_s = time.monotonic()
    assert graph.block(graph.wait_threads(one, [other], timeout_s=PATIENCE_S))
    assert time.monotonic() - began_s >= PATIENCE_S and clock.glances < FEW_GLANCES


def test_an_awaiting_task_sleeps_until_its_deadline() -> None:
    """Catches: the same in a loop."""
    clock = CountingClock()
    graph = Graph(clock_s=clock)
    one, other = graph.thread(), graph.thread()
    wait = asyncio.run(graph.wait_async(one, [other], timeout_s=PATIENCE_S))
    assert wait.timed_out and clock.glances < FEW_GLANCES
