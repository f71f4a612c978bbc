"""The scheduler on programs small enough to count their interleavings by hand."""

from __future__ import annotations

import random
import threading
from math import comb

import pytest

from fuzz.exploration import explore, run_one, sample
from fuzz.locks import Condition, standing_in
from fuzz.scheduler import Deadlock, Scheduler


class Counter:
    """Counts in two steps, so that an update can be lost between them."""

    def __init__(self, scheduler: Scheduler, lock: Condition | None = None) -> None:
        self.scheduler, self.lock, self.value = scheduler, lock, 0

    def add(self) -> None:
        if self.lock is not None:
            with self.lock:
                self._add()
        else:
            self._add()

    def _add(self) -> None:
        seen = self.value
        self.scheduler.point("between")
        self.value = seen + 1


def counting(workers: int, *, locked: bool):
    def scenario(scheduler: Scheduler):
        counter = Counter(scheduler, Condition(scheduler) if locked else None)

        def check() -> None:
            assert counter.value == workers, "an update was lost"

        return [counter.add] * workers, check

    return scenario


def test_all_interleavings_are_run_once() -> None:
    """Catches: a search that skips or repeats choices. Two bodies of two pieces each interleave in C(4, 2) ways."""
    runs = list(explore(counting(2, locked=False)))
    orders = {tuple(step.worker for step in run.steps) for run in runs}
    assert len(runs) == len({run.choices for run in runs}) == comb(4, 2)
    assert len(orders) >= 4
    assert sum(run.error is not None for run in runs) == 4, "all but the two serial ones lose an update"


def test_a_lock_leaves_no_bad_interleaving() -> None:
    """Catches: a lock that lets two in, or one that never lets the second in."""
    runs = list(explore(counting(3, locked=True)))
    assert len(runs) > 6 and all(run.error is None for run in runs)


def test_choices_name_an_interleaving() -> None:
    """Catches: choices that mean something else the second time, so that nothing found could be shown again."""
    scenario = counting(2, locked=False)
    failing = next(run for run in explore(scenario) if run.error is not None)
    again = run_one(scenario, failing.choices, lambda options: 0)
    assert again.steps == failing.steps and type(again.error) is type(failing.error) is AssertionError


def test_a_sample_finds_the_race_too() -> None:
    """Catches: a sampler that always takes the first choice."""
    choose = random.Random(0).randrange
    runs = list(sample(counting(2, locked=False), choose=choose, count=20))
    assert any(run.error is not None for run in runs)


def test_a_deadlock_is_named() -> None:
    """Catches: two locks taken in two orders that hang the search instead of failing it."""

    def scenario(scheduler: Scheduler):
        one, other = Condition(scheduler), Condition(scheduler)

        def take(first: Condition, second: Condition) -> None:
            with first, second:
                pass

        return [lambda: take(one, other), lambda: take(other, one)], lambda: None

    errors = [type(run.error) for run in explore(scenario)]
    assert Deadlock in errors and type(None) in errors
    assert set(errors) <= {Deadlock, type(None)}


@pytest.mark.parametrize("notifies", [True, False])
def test_a_sleeper_goes_on_when_it_is_told_to(notifies: bool) -> None:
    """Catches: a wait that keeps the lock, misses its notification, or goes on without one."""

    def scenario(scheduler: Scheduler):
        condition, ready = Condition(scheduler), []

        def sleep() -> None:
            with condition:
                condition.wait_for(lambda: bool(ready))

        def tell() -> None:
            with condition:
                ready.append(1)
                if notifies:
                    condition.notify_all()

        return [sleep, tell], lambda: None

    errors = {type(run.error) for run in explore(scenario)}
    assert errors == ({type(None)} if notifies else {type(None), Deadlock})


def test_an_impatient_sleeper_goes_on_when_nobody_else_can() -> None:
    """Catches: a wait with a timeout that deadlocks the schedule."""
    outcomes = []

    def scenario(scheduler: Scheduler):
        condition = Condition(scheduler)

        def sleep() -> None:
            with condition:
                outcomes.append(condition.wait(timeout=1.0))

        return [sleep, lambda: None], lambda: None

    assert all(run.error is None for run in explore(scenario))
    assert outcomes and not any(outcomes)


def test_pythons_own_locks_are_replaced_only_while_it_is_built() -> None:
    """Catches: a patch that stays, and changes every lock of the process."""
    with standing_in(Scheduler(lambda options: 0)):
        assert isinstance(threading.Condition(), Condition) and isinstance(threading.RLock(), Condition)
    assert not isinstance(threading.Condition(), Condition)
