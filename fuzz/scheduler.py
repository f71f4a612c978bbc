"""A cooperative scheduler: real Python threads, one running at a time, that change only at named points.

Which thread goes on at each point is a list of choices, so an interleaving can be named, repeated and varied. With the
choices of a depth-first search all interleavings are run; with those of a seeded generator, a sample.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass

PATIENCE_S = 60.0
"""How long a thread may run between two points before the schedule is called stuck."""


class Deadlock(Exception):
    """Nobody can go on: every thread that has not finished waits for a lock."""


class Stuck(Exception):
    """A thread neither reached a point nor finished in time: it blocks outside the scheduler's sight."""


class Abandoned(BaseException):
    """Unwinds a thread whose schedule is given up. Not an `Exception`, so that no handler takes it."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Step:
    """A choice that was made: which of how many threads that could go on, and the point that it stood at."""

    chosen: int
    options: int
    worker: int
    point: str


class Worker:
    """One thread of a schedule, and the baton that lets it go on.

    Attributes:
        blocked: Says whether it cannot go on yet; None when it can.
        patient: Whether it waits however long; if not, its wait ends when nobody else can go on.
    """

    def __init__(self, number: int, body: Callable[[], object]) -> None:
        self.number = number
        self.body = body
        self.point = "start"
        self.blocked: Callable[[], bool] | None = None
        self.patient = True
        self.finished = False
        self.error: BaseException | None = None
        self.baton = threading.Semaphore(0)


class Scheduler:
    """Runs one interleaving of some bodies.

    Attributes:
        steps: The choices made so far. Points at which only one thread could go on are no choices.
        current: The worker that runs now; None outside of a run.
    """

    def __init__(self, choose: Callable[[int], int]) -> None:
        """`choose(options)` names which of the threads that can go on is next."""
        self.steps: list[Step] = []
        self.current: Worker | None = None
        self._choose = choose
        self._workers: list[Worker] = []
        self._back = threading.Semaphore(0)
        self._abandoned = False

    def point(self, name: str) -> None:
        """A named point at which another thread may go on. Nothing when no schedule runs."""
        worker = self.current
        if worker is None:
            return
        worker.point = name
        self._yield(worker)

    def wait_while(self, blocked: Callable[[], bool], name: str, *, patient: bool = True) -> None:
        """A named point at which the worker stays while `blocked()`; if not `patient`, until nobody else can go on."""
        worker = self.current
        if worker is not None:
            worker.point, worker.blocked, worker.patient = name, blocked, patient
            self._yield(worker)
            worker.blocked, worker.patient = None, True

    def run(self, bodies: Sequence[Callable[[], object]]) -> None:
        """Runs the bodies to their ends, one interleaving. Raises the first error of a body; Deadlock; Stuck."""
        self._workers = [Worker(number, body) for number, body in enumerate(bodies)]
        threads = [threading.Thread(target=self._work, args=(worker,), daemon=True) for worker in self._workers]
        for thread in threads:
            thread.start()
        try:
            while any(not worker.finished for worker in self._workers):
                self._advance()
        finally:
            self._give_up()
            for thread in threads:
                thread.join(PATIENCE_S)
        for worker in self._workers:
            if worker.error is not None:
                raise worker.error

    def _advance(self) -> None:
        left = [worker for worker in self._workers if not worker.finished]
        ready = [worker for worker in left if worker.blocked is None or not worker.blocked()]
        ready = ready or [worker for worker in left if not worker.patient][:1]
        if not ready:
            raise Deadlock(f"nobody can go on: {', '.join(f'{worker.number} at {worker.point}' for worker in left)}")
        chosen = self._choose(len(ready)) if len(ready) > 1 else 0
        worker = ready[chosen]
        if len(ready) > 1:
            self.steps.append(Step(chosen=chosen, options=len(ready), worker=worker.number, point=worker.point))
        self.current = worker
        worker.baton.release()
        if not self._back.acquire(timeout=PATIENCE_S):
            raise Stuck(f"worker {worker.number} did not come back after {worker.point!r} in {PATIENCE_S} s")
        self.current = None

    def _yield(self, worker: Worker) -> None:
        self._back.release()
        worker.baton.acquire()
        if self._abandoned:
            raise Abandoned

    def _work(self, worker: Worker) -> None:
        worker.baton.acquire()
        try:
            if not self._abandoned:
                worker.body()
        except Abandoned:
            pass
        except BaseException as error:  # noqa: BLE001  It is raised again by `run`, in the caller's thread.
            worker.error = error
        worker.finished = True
        self._back.release()

    def _give_up(self) -> None:
        """Unwinds what has not finished: a worker that holds the baton runs on and raises at its next point."""
        self._abandoned, self.current = True, None
        for worker in self._workers:
            worker.baton.release()
