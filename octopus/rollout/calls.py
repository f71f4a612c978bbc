"""Calls of tools that are under way: time limits, further tries, and tools that never return.

A sync tool runs in a daemon thread of its own, an async one on an event loop in a daemon thread. So neither holds up
the stepping of threads that do not wait for it, and one that never returns cannot keep the process from ending.
"""

from __future__ import annotations

import asyncio
import concurrent.futures
import threading
import time
import weakref
from collections.abc import Collection
from concurrent.futures import Future
from contextvars import Context, copy_context
from dataclasses import dataclass, field, replace
from typing import Any

from octopus.rollout.tools import Tool, ToolResult

PATIENCE_S = 0.05
"""How long a loop on which a call was abandoned has to show that it still runs."""


@dataclass(kw_only=True, slots=True, eq=False)
class Call:
    """One call of a tool, with all its tries.

    Attributes:
        tool: The tool.
        argument: The policy's words.
        settled: Gets what comes back of the present try.
        deadline_s: When the present try is abandoned, on the monotonic clock.
        attempts: Number of tries so far.
        started_s: When the first try began, on the monotonic clock.
        context: The context variables of whoever called, which the tool logs with.
    """

    tool: Tool
    argument: str
    settled: Future[ToolResult]
    deadline_s: float
    attempts: int = 0
    started_s: float = field(default_factory=time.monotonic)
    context: Context = field(default_factory=copy_context)


class Calls:
    """Starts calls and says what has come back.

    Attributes:
        seconds: Wall time of the calls that have come back, by whether they succeeded. It only rises.
    """

    def __init__(self) -> None:
        self.seconds = {True: 0.0, False: 0.0}
        self._loop: _LoopThread | None = None

    def start(self, tool: Tool, argument: str) -> Call:
        """Begins a call."""
        call = Call(tool=tool, argument=argument, settled=Future(), deadline_s=0.0)
        self._try(call)
        return call

    def poll(self, call: Call) -> ToolResult | None:
        """What came back of the call, None while it is under way. Begins the next try where one is due."""
        limits = call.tool.limits
        if call.settled.done():
            result = call.settled.result()
        elif time.monotonic() >= call.deadline_s:
            self.abandon(call)
            result = ToolResult(text=f"the tool gave no result within {limits.time_s:g} s", ok=False, again=True)
        else:
            return None
        if result.again and call.attempts <= limits.retries:
            self._try(call)
            return None
        self.seconds[result.ok] += time.monotonic() - call.started_s
        return replace(result, attempts=call.attempts)

    def wait(self, calls: Collection[Call], told: Future[None] | None = None) -> None:
        """Sleeps until one of them, of which there is at least one, may have something to say, or `told` is done."""
        deadline_s = min(call.deadline_s for call in calls)
        futures: list[Future[Any]] = [call.settled for call in calls]
        concurrent.futures.wait(
            futures if told is None else [*futures, told],
            timeout=max(0.0, deadline_s - time.monotonic()),
            return_when=concurrent.futures.FIRST_COMPLETED,
        )

    def abandon(self, call: Call) -> None:
        """Nobody waits for the call any more. An async tool is cancelled; a sync one goes on for itself."""
        if call.tool.is_async and self._loop is not None:
            self._loop.cancel(call)

    def _try(self, call: Call) -> None:
        call.attempts += 1
        call.settled = Future()
        call.deadline_s = time.monotonic() + call.tool.limits.time_s
        if call.tool.is_async:
            if self._loop is None or not self._loop.alive():
                self._loop = _LoopThread()
            self._loop.start(call)
        else:
            # A copy for each try: one that was abandoned may still be in its own.
            arguments = (call.tool.call, call.argument, call.settled)
            threading.Thread(target=call.context.copy().run, args=arguments, name="tool", daemon=True).start()


class _LoopThread:
    """An event loop in a daemon thread, stopped when nobody holds this object any more."""

    def __init__(self) -> None:
        self._loop = asyncio.new_event_loop()
        self._tasks: weakref.WeakKeyDictionary[Future[ToolResult], asyncio.Task[None]] = weakref.WeakKeyDictionary()
        self._in_doubt = False
        threading.Thread(target=_run, args=(self._loop,), name="async tools", daemon=True).start()
        weakref.finalize(self, self._loop.call_soon_threadsafe, self._loop.stop).atexit = False

    def alive(self) -> bool:
        """False if a call was abandoned and the loop has been stuck since: an async tool that never awaits."""
        if self._in_doubt:
            heard = threading.Event()
            self._loop.call_soon_threadsafe(heard.set)
            self._in_doubt = not heard.wait(PATIENCE_S)
        return not self._in_doubt

    def start(self, call: Call) -> None:
        """Begins the call's present try."""
        tasks, settled = self._tasks, call.settled

        def begin() -> None:
            work = call.tool.acall(call.argument, settled)
            tasks[settled] = asyncio.get_running_loop().create_task(work, context=call.context.copy())

        self._loop.call_soon_threadsafe(begin)

    def cancel(self, call: Call) -> None:
        """Cancels the call's present try, if it listens."""
        tasks, settled = self._tasks, call.settled

        def end() -> None:
            if settled in tasks:
                tasks[settled].cancel()

        self._in_doubt = True
        self._loop.call_soon_threadsafe(end)


def _run(loop: asyncio.AbstractEventLoop) -> None:
    loop.run_forever()
    tasks = asyncio.all_tasks(loop)
    for task in tasks:
        task.cancel()
    loop.run_until_complete(asyncio.wait(tasks, timeout=PATIENCE_S) if tasks else asyncio.sleep(0))
    loop.close()
