"""Interleavings: all of them, depth first, or a drawn sample."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

from fuzz.points import watched
from fuzz.scheduler import Scheduler, Step


@dataclass(frozen=True, kw_only=True, slots=True)
class Interleaving:
    """One explored interleaving: the choices that name it, and its error if it had one."""

    choices: tuple[int, ...]
    steps: tuple[Step, ...]
    error: BaseException | None


Scenario = Callable[[Scheduler], tuple[Sequence[Callable[[], object]], Callable[[], object]]]
"""Makes fresh bodies, and the check that runs after them, for each interleaving."""


def run_one(scenario: Scenario, choices: Sequence[int], choose_rest: Callable[[int], int]) -> Interleaving:
    """One interleaving: `choices` first, `choose_rest` afterwards. Errors are kept, not raised."""
    left = list(reversed(choices))
    scheduler = Scheduler(lambda options: left.pop() if left else choose_rest(options))
    bodies, check = scenario(scheduler)
    error: BaseException | None = None
    try:
        with watched(scheduler):
            scheduler.run(bodies)
        check()
    except BaseException as raised:
        if isinstance(raised, KeyboardInterrupt):
            raise
        error = raised
    steps = tuple(scheduler.steps)
    return Interleaving(choices=tuple(step.chosen for step in steps), steps=steps, error=error)


def explore(scenario: Scenario) -> Iterator[Interleaving]:
    """All interleavings, depth first: the last choice that has an untried option is varied next."""
    prefix: list[int] | None = []
    while prefix is not None:
        done = run_one(scenario, prefix, lambda options: 0)
        yield done
        prefix = _next_prefix(done.steps)


def sample(scenario: Scenario, *, choose: Callable[[int], int], count: int) -> Iterator[Interleaving]:
    """So many interleavings with drawn choices."""
    for _ in range(count):
        yield run_one(scenario, [], choose)


def _next_prefix(steps: Sequence[Step]) -> list[int] | None:
    for last in range(len(steps) - 1, -1, -1):
        if steps[last].chosen + 1 < steps[last].options:
            return [step.chosen for step in steps[:last]] + [steps[last].chosen + 1]
    return None
