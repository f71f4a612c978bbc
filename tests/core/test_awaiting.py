"""Waiting in an event loop and by blocking: nobody else stands still, nobody waits for ever."""

from __future__ import annotations

import asyncio
import threading
import time

import pytest

from octopus.core.errors import NotRunning, WaitCycle
from octopus.core.graph import Graph
from octopus.core.thread import Status, Thread


def pair() -> tuple[Graph, Thread, Thread]:
    graph = Graph()
    return graph, graph.thread(), graph.thread()


def test_an_event_loop_goes_on_while_a_thread_waits() -> None:
    """Catches: a wait that blocks the loop, so that whoever would end it never runs."""
    graph, waiter, other = pair()

    async def work() -> None:
        for _ in range(3):
            await asyncio.sleep(0)
        assert waiter.status is Status.WAITING
        graph.cancel(other)

    async def both() -> None:
        wait, _ = await asyncio.gather(graph.wait_async(waiter, [other]), work())
        assert wait.done and wait.statuses == {other.id: Status.CANCELLED} and not wait.timed_out

    asyncio.run(both())
    assert waiter.status is Status.RUNNING


def test_another_python_thread_wakes_the_loop() -> None:
    """Catches: an event set from a foreign thread without telling the loop."""
    graph, waiter, other = pair()

    async def main() -> None:
        timer = threading.Timer(0.05, graph.commit, [other])
        timer.start()
        wait = await asyncio.wait_for(graph.wait_async(waiter, [other]), 20)
        assert wait.statuses == {other.id: Status.COMMITTED}

    asyncio.run(main())


def test_a_deadline_ends_the_wait_in_a_loop_and_out_of_it() -> None:
    """Catches: deadlines that somebody else has to look after."""
    graph, waiter, other = pair()
    wait = asyncio.run(graph.wait_async(waiter, [other], timeout_s=0.02))
    assert wait.timed_out and waiter.status is Status.RUNNING
    wait = graph.wait_threads(waiter, [other], timeout_s=0.02)
    assert graph.block(wait) and wait.timed_out
    wait = graph.wait_threads(waiter, [other])
    assert not graph.block(wait, timeout_s=0.01) and waiter.status is Status.WAITING
    graph.cancel(other)
    assert graph.block(wait) and not wait.timed_out
    assert asyncio.run(graph.wait_async(waiter, [other])).done


@pytest.mark.parametrize("when", range(4))
def test_a_cancelled_task_withdraws_its_wait(when: int) -> None:
    """Catches: a thread that waits for ever since the task that would resume it has gone."""
    graph, waiter, other = pair()

    async def main() -> None:
        task = asyncio.ensure_future(graph.wait_async(waiter, [other]))
        for _ in range(when):
            await asyncio.sleep(0)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task

    asyncio.run(main())
    assert waiter.status is Status.RUNNING and not other.waiters and waiter.wait is None
    graph.cancel(other)
    graph.audit()


def test_a_waiter_that_is_cancelled_is_let_go() -> None:
    """Catches: an await that never returns since its thread has ended."""
    graph, waiter, other = pair()

    async def main() -> None:
        task = asyncio.ensure_future(graph.wait_async(waiter, [other]))
        await asyncio.sleep(0)
        graph.cancel(waiter)
        wait = await asyncio.wait_for(task, 20)
        assert wait.done

    asyncio.run(main())
    assert waiter.status is Status.CANCELLED
    graph.audit()


def test_refusals_reach_whoever_awaits() -> None:
    """Catches: an error that is lost in a task."""
    graph, waiter, other = pair()
    graph.wait_threads(other, [waiter])
    with pytest.raises(WaitCycle):
        asyncio.run(graph.wait_async(waiter, [other]))
    graph.cancel(waiter)
    with pytest.raises(NotRunning):
        asyncio.run(graph.wait_async(waiter, [other]))


def test_withdrawing_is_idempotent() -> None:
    """Catches: a second resume of a thread that waits for something else by now."""
    graph, waiter, other = pair()
    wait = graph.wait_threads(waiter, [other])
    graph.withdraw(wait)
    assert wait.timed_out and wait.done and waiter.status is Status.RUNNING
    second = graph.wait_threads(waiter, [other])
    graph.withdraw(wait)
    assert not second.done and waiter.status is Status.WAITING
    graph.audit()


def test_a_blocked_python_thread_does_not_hold_the_graph() -> None:
    """Catches: a blocking wait under the lock."""
    graph, waiter, other = pair()
    wait = graph.wait_threads(waiter, [other])
    blocked = threading.Thread(target=graph.block, args=[wait])
    blocked.start()
    time.sleep(0.02)
    graph.append(other, [1])
    graph.commit(other)
    blocked.join(timeout=20)
    assert not blocked.is_alive()
