"""Cancellation at every await: a coroutine is cancelled at its first suspension, at its second, and so on."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Coroutine, Generator, Sequence
from typing import Any

from fuzz.operations import PAGE
from octopus.core.graph import Graph
from octopus.core.pool import PagePool
from octopus.core.thread import Status, Thread

PAGES = 12
Script = Callable[[Graph, Thread, Sequence[Thread]], Coroutine[Any, Any, None]]


class CancelledAt(Awaitable[bool]):
    """Awaits a coroutine, and cancels it at its `at`-th suspension. Says whether it came that far."""

    def __init__(self, coroutine: Coroutine[Any, Any, None], at: int) -> None:
        self._coroutine = coroutine
        self._at = at

    def __await__(self) -> Generator[Any, None, bool]:
        """As the coroutine would, but for the cancellation. Cleaning up may suspend again."""
        suspensions = 0
        try:
            waited_for = self._coroutine.send(None)
            while True:
                suspensions += 1
                if suspensions == self._at:
                    waited_for = self._coroutine.throw(asyncio.CancelledError())
                yield waited_for
                waited_for = self._coroutine.send(None)
        except StopIteration:
            assert suspensions < self._at, "a coroutine went on after it was cancelled"
            return False
        except asyncio.CancelledError:
            return True


async def wait_for_all(graph: Graph, root: Thread, children: Sequence[Thread]) -> None:
    """A parent waits for its children, twice."""
    await graph.wait_async(root, children[:1])
    await graph.wait_async(root, children)


async def wait_for_any_snapshot(graph: Graph, root: Thread, children: Sequence[Thread]) -> None:
    """A parent waits for a newer version of any child, then for the end of one."""
    await graph.wait_async(root, children, mode="any", until="snapshot")
    await graph.wait_async(root, children, mode="any")


async def wait_with_deadline(graph: Graph, root: Thread, children: Sequence[Thread]) -> None:
    """A wait that ends by its deadline, then one that ends by what it waits for."""
    await graph.wait_async(root, children[-1:], timeout_s=0.005)
    await graph.wait_async(root, children[:1])


async def read_after_wait(graph: Graph, root: Thread, children: Sequence[Thread]) -> None:
    """What a parent does between its waits stays when it is cancelled in a later one."""
    await graph.wait_async(root, children[:1])
    graph.read_thread(root, children[0])
    await graph.wait_async(root, children[1:])


SCRIPTS: tuple[Script, ...] = (wait_for_all, wait_for_any_snapshot, wait_with_deadline, read_after_wait)


def cancel_everywhere(script: Script, *, most: int = 50) -> int:
    """Runs the script with a cancellation at each of its suspensions; returns how many those are.

    Raises AssertionError unless each leaves a running thread, no open wait, and a store that can be emptied.
    """
    for at in range(1, most):
        if not asyncio.run(_run(script, at)):
            return at - 1
    raise AssertionError(f"{script.__name__} was suspended {most} times")


async def _run(script: Script, at: int) -> bool:
    pages = PagePool(PAGES, page_size=PAGE)
    graph = Graph(pages=pages)
    root = graph.thread()
    children = graph.fork(root, 3)
    others = asyncio.create_task(_end(graph, children))
    cancelled = await CancelledAt(script(graph, root, children), at)
    if cancelled:
        assert root.status is Status.RUNNING, f"{root} after its wait was withdrawn"
        assert root.wait is None and not any(child.waiters for child in children)
    graph.audit()
    await others
    assert all(child.status is Status.COMMITTED for child in children), "a cancelled waiter ended who it waited for"
    graph.append(root, [1])
    for thread in graph.threads:
        graph.drop(thread)
    graph.trim()
    graph.audit()
    assert pages.free == pages.capacity and not graph.segments
    return cancelled


async def _end(graph: Graph, children: Sequence[Thread]) -> None:
    """The children commit, one a turn of the loop."""
    for child in children:
        await asyncio.sleep(0)
        graph.commit(child, keep_running=True)
        await asyncio.sleep(0.01)
        graph.commit(child)
