"""Who waits for whom."""

from __future__ import annotations

from collections.abc import Callable, Collection
from dataclasses import dataclass, field
from typing import Literal, NamedTuple

from octopus.core.ancestry import locate
from octopus.core.cursor import Cursor
from octopus.core.errors import WaitCycle
from octopus.core.ledger import Ledger
from octopus.core.thread import Status, Thread

WaitMode = Literal["all", "any"]
WaitUntil = Literal["terminal", "snapshot"]


class WaitEdge(NamedTuple):
    """What thread `thread` writes after event `order`, from `waiter` on, happens after the tokens up to `awaited`.

    `awaited` names the segment that holds the last of those tokens.
    """

    waiter: Cursor
    awaited: Cursor
    order: int
    thread: int


@dataclass(kw_only=True, slots=True, eq=False)
class Wait:
    """One call of `wait_threads`, open until `done`.

    Attributes:
        known_versions: For each awaited thread its version at the call; a newer one satisfies `snapshot`.
        met_at: For each awaited thread that has done what was waited for, the place it had then reached.
        deadline_s: Time of the graph's clock at which it ends anyway; None for never.
        statuses: Status of each awaited thread, by thread id, once done or once the waiter has ended.
        timed_out: Whether the deadline ended it.
        callbacks: Called with the wait, once, when it is done.
    """

    waiter: Thread
    awaited: tuple[Thread, ...]
    mode: WaitMode
    until: WaitUntil
    known_versions: tuple[int, ...]
    deadline_s: float | None
    met_at: dict[Thread, Cursor] = field(default_factory=dict)
    statuses: dict[int, Status] | None = None
    timed_out: bool = False
    callbacks: list[Callable[[Wait], object]] = field(default_factory=list)

    @property
    def done(self) -> bool:
        """Whether it is over: the waiter went on, or has ended."""
        return self.statuses is not None

    def look(self) -> bool:
        """Notes the awaited threads that have done what was waited for; returns whether they are enough."""
        for thread, known in zip(self.awaited, self.known_versions, strict=True):
            if thread.status.terminal or (self.until == "snapshot" and thread.version > known):
                self.met_at.setdefault(thread, locate(thread.cursor, thread.cursor.path_length))
        return len(self.met_at) == len(set(self.awaited)) if self.mode == "all" else bool(self.met_at)


class WaitTable:
    """The waits that are open, and the edges that ended ones have left.

    Attributes:
        edges: Who went on after whom, in order.
    """

    def __init__(self, ledger: Ledger, clock_s: Callable[[], float]) -> None:
        self.edges: list[WaitEdge] = []
        self._ledger = ledger
        self._clock_s = clock_s
        self._open: dict[Wait, None] = {}

    def begin(
        self, thread: Thread, others: tuple[Thread, ...], mode: WaitMode, until: WaitUntil, timeout_s: float | None
    ) -> Wait:
        """Suspends `thread` unless there is nothing to wait for. Raises WaitCycle, StaleHandle, ValueError."""
        for other in others:
            self._ledger.known(other)
        if mode not in ("all", "any") or until not in ("terminal", "snapshot"):
            raise ValueError(f"mode is 'all' or 'any' and until 'terminal' or 'snapshot', got {mode!r}, {until!r}")
        if mode == "any" and not others:
            raise ValueError("waiting for any of no threads would never end; name at least one thread")
        wait = Wait(
            waiter=thread,
            awaited=others,
            mode=mode,
            until=until,
            known_versions=tuple(other.version for other in others),
            deadline_s=None if timeout_s is None else self._clock_s() + timeout_s,
        )
        satisfied = wait.look()
        if not satisfied:
            refuse_cycle(thread, others)
        self._ledger.event("wait", thread.id, [other.id for other in others], mode, until, timeout_s)
        if satisfied:
            self._finish([wait])
            return wait
        thread.status, thread.wait = Status.WAITING, wait
        self._open[wait] = None
        for other in set(others):
            other.waiters = other.waiters or {}
            other.waiters[wait] = None
        return wait

    def prune(self) -> None:
        """Forgets the edges of which a side was evicted: no row can show them."""
        kept = self._ledger.retention.segments
        self.edges[:] = [
            edge
            for edge in self.edges
            if edge.waiter.segment.index in kept and edge.awaited.segment.index in kept
        ]

    def wake(self, *threads: Thread) -> None:
        """`threads` have ended or have a newer version: lets those go on for whom that was enough."""
        self._finish(dict.fromkeys(wait for thread in threads for wait in thread.waiters if wait.look()))

    def expire(self) -> list[Wait]:
        """Ends the waits whose deadline has passed and returns them."""
        now_s = self._clock_s()
        late = [wait for wait in self._open if wait.deadline_s is not None and wait.deadline_s <= now_s]
        for wait in late:
            wait.timed_out = True
        self._finish(late)
        return late

    def withdraw(self, wait: Wait) -> None:
        """The waiter goes on without having got what it waited for. Nothing for a wait that is done."""
        if not wait.done:
            wait.timed_out = True
            self._finish([wait])

    def close(self, wait: Wait) -> None:
        """Nobody waits on `wait` any more: it has finished, or the waiter has ended."""
        if wait.statuses is None:
            wait.statuses = {other.id: other.status for other in wait.awaited}
        wait.waiter.wait = None
        callbacks, wait.callbacks = wait.callbacks, []
        for callback in callbacks:
            callback(wait)
        if wait in self._open:
            del self._open[wait]
            for other in set(wait.awaited):
                del other.waiters[wait]

    def _finish(self, waits: Collection[Wait]) -> None:
        """Lets the waiters go on. All are told the statuses of one moment, in which none of them went on yet."""
        for wait in waits:
            wait.statuses = {other.id: other.status for other in wait.awaited}
        for wait in waits:
            self._go_on(wait)

    def _go_on(self, wait: Wait) -> None:
        thread, event = wait.waiter, self._ledger.event
        self.close(wait)
        thread.status = Status.RUNNING
        named = [(other, status.value) for other, status in (wait.statuses or {}).items()]
        segment, length = thread.cursor
        order = event("resume", thread.id, segment.index, length, named, wait.timed_out)
        places = [wait.met_at[other] for other in dict.fromkeys(wait.awaited) if other in wait.met_at]
        for place in () if wait.timed_out else places:
            self.edges.append(WaitEdge(thread.cursor, place, order, thread.id))
            event("wait_edge", segment.index, length, place.segment.index, place.length)


def refuse_cycle(thread: Thread, others: tuple[Thread, ...]) -> None:
    """Raises WaitCycle if one of `others` waits, directly or through others, for `thread`."""
    came_from: dict[Thread, Thread] = {}
    stack = [other for other in others if other is not thread]
    if len(stack) < len(others):
        raise WaitCycle(f"thread {thread.id} cannot wait for itself")
    seen = set(stack)
    while stack:
        other = stack.pop()
        for awaited in other.wait.awaited if other.wait is not None else ():
            came_from.setdefault(awaited, other)
            if awaited is thread:
                raise WaitCycle(_cycle_message(thread, came_from))
            if awaited not in seen:
                seen.add(awaited)
                stack.append(awaited)


def _cycle_message(thread: Thread, came_from: dict[Thread, Thread]) -> str:
    chain = [thread]
    while (before := came_from.get(chain[-1])) is not None and before is not thread:
        chain.append(before)
    names = " waits for ".join(str(link.id) for link in [*reversed(chain)])
    return (
        f"thread {thread.id} cannot wait for thread {chain[-1].id}: {names} already; "
        "nobody of them would ever go on. Wait for a thread that does not wait for you"
    )
