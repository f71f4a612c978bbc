"""A lock that the scheduler sees. A store that is built while it stands in for Python's own uses it."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from unittest import mock

from fuzz.scheduler import Scheduler, Worker


class Condition:
    """A re-entrant lock with `wait` and `notify_all`: what `threading.Condition()` is.

    Outside of any schedule, in the set-up and in the checks, it lets everybody through.
    """

    def __init__(self, scheduler: Scheduler) -> None:
        self.owner: Worker | None = None
        self._scheduler = scheduler
        self._depth = 0
        self._sleepers: list[Worker] = []

    def acquire(self, blocking: bool = True, timeout: float = -1) -> bool:
        """Takes the lock, after a point at which nobody is chosen who would find it taken."""
        worker = self._scheduler.current
        if worker is None:
            return True
        if self.owner is not worker:
            if not blocking:
                self._scheduler.point("try lock")
                if self.owner is not None:
                    return False
            else:
                self._scheduler.wait_while(lambda: self.owner is not None, "lock")
            self.owner = worker
        self._depth += 1
        return True

    def release(self) -> None:
        """Gives the lock back. Raises RuntimeError if the caller does not hold it."""
        worker = self._scheduler.current
        if worker is None:
            return
        if self.owner is not worker:
            raise RuntimeError(f"worker {worker.number} releases a lock that it does not hold")
        self._depth -= 1
        if self._depth == 0:
            self.owner = None

    def wait(self, timeout: float | None = None) -> bool:
        """Sleeps, with the lock given back, until it is notified. A timeout passes when nobody else can go on."""
        worker = self._scheduler.current
        if worker is None:
            return False
        if self.owner is not worker:
            raise RuntimeError(f"worker {worker.number} waits on a lock that it does not hold")
        depth, self._depth, self.owner = self._depth, 0, None
        self._sleepers.append(worker)
        self._scheduler.wait_while(
            lambda: worker in self._sleepers or self.owner is not None, "asleep", patient=timeout is None
        )
        notified = worker not in self._sleepers
        if not notified:
            self._sleepers.remove(worker)
        if self.owner is not None:
            self._scheduler.wait_while(lambda: self.owner is not None, "lock")
        self._depth, self.owner = depth, worker
        return notified

    def wait_for(self, predicate: Callable[[], bool], timeout: float | None = None) -> bool:
        """Waits until the predicate holds; False if the time has passed before."""
        while not predicate():
            if not self.wait(timeout):
                return predicate()
        return True

    def notify_all(self) -> None:
        """Everybody who sleeps may go on once the lock is free."""
        self._sleepers.clear()

    def notify(self, n: int = 1) -> None:
        """The first `n` sleepers may go on."""
        del self._sleepers[:n]

    def __enter__(self) -> bool:
        return self.acquire()

    def __exit__(self, *exception: object) -> None:
        self.release()


@contextmanager
def standing_in(scheduler: Scheduler) -> Iterator[None]:
    """What is built inside gets the scheduler's locks where it asks `threading` for one."""

    def condition(lock: object = None) -> Condition:
        return lock if isinstance(lock, Condition) else Condition(scheduler)

    with mock.patch.object(threading, "Condition", condition), mock.patch.object(threading, "RLock", condition):
        yield
