"""The model's waits: a list of open ones, looked through after everything that could end one."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from fuzz.model import ModelThread


class ModelWait:
    """One call of `wait`, open until `statuses` is there.

    What was waited for counts from the moment it happened: a condition once met stays met.
    """

    def __init__(
        self,
        waiter: ModelThread,
        awaited: tuple[ModelThread, ...],
        mode: str,
        until: str,
        deadline_s: float | None,
    ) -> None:
        self.waiter, self.awaited, self.mode, self.until = waiter, awaited, mode, until
        self.deadline_s = deadline_s
        self.statuses: dict[int, str] | None = None
        self.timed_out = False
        self._known_versions = [thread.version for thread in awaited]
        self._happened: set[int] = set()

    def met(self) -> bool:
        """Whether enough of the awaited have done what was waited for."""
        for thread, known in zip(self.awaited, self._known_versions, strict=True):
            if thread.ended or (self.until == "snapshot" and thread.version > known):
                self._happened.add(thread.id)
        everybody = {thread.id for thread in self.awaited}
        return self._happened == everybody if self.mode == "all" else bool(self._happened)

    def finish(self) -> None:
        """It is over: the statuses of the moment are its answer, if it has none yet."""
        self.answer()
        self.waiter.wait = None

    def answer(self) -> None:
        """Notes the statuses of the moment, once."""
        if self.statuses is None:
            self.statuses = {thread.id: thread.status for thread in self.awaited}


class Waits:
    """The open waits."""

    def __init__(self, clock_s: Callable[[], float]) -> None:
        self.open: list[ModelWait] = []
        self._clock_s = clock_s

    def deadline_s(self, timeout_s: float | None) -> float | None:
        """When a wait that begins now ends anyway."""
        return None if timeout_s is None else self._clock_s() + timeout_s

    def close(self, wait: ModelWait) -> None:
        """Ends a wait, whose waiter ends or goes on."""
        wait.finish()
        self.open.remove(wait)

    def settle(self) -> None:
        """Lets everybody go on who has what he waited for."""
        self._end([wait for wait in self.open if wait.met()])

    def expire(self) -> list[ModelWait]:
        """Ends the waits whose time is up and returns them."""
        late = [wait for wait in self.open if wait.deadline_s is not None and wait.deadline_s <= self._clock_s()]
        for wait in late:
            wait.timed_out = True
        self._end(late)
        return late

    def _end(self, waits: list[ModelWait]) -> None:
        """Ends waits at one moment: each is answered before any of the waiters goes on."""
        for wait in waits:
            wait.answer()
        for wait in waits:
            self.close(wait)
            wait.waiter.status = "running"

    def would_close_cycle(self, thread: ModelThread, others: Sequence[ModelThread]) -> bool:
        """Whether one of `others` waits for `thread`, through whomever."""
        reached = {thread.id for thread in others}
        grown = True
        while grown:
            links = [other.id for wait in self.open if wait.waiter.id in reached for other in wait.awaited]
            grown = not reached.issuperset(links)
            reached.update(links)
        return thread.id in reached
