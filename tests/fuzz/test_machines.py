"""Smoke runs of every attack, small; `python -m fuzz` runs them at length."""

from __future__ import annotations

import random
from collections import Counter

import pytest
from hypothesis.stateful import run_state_machine_as_test

from fuzz.allocations import attempts
from fuzz.canary import CANARIES, Canary, found_after
from fuzz.cancellations import SCRIPTS, Script, cancel_everywhere
from fuzz.crowd import SETUPS as CROWDED
from fuzz.crowd import rush
from fuzz.episodes import SETUPS, carry_out, drawn
from fuzz.exploration import Scenario, explore, sample
from fuzz.machine import StoreMachine
from fuzz.profiles import Profile
from fuzz.scenarios import SCENARIOS
from fuzz.world import Setup

TINY = Profile(name="octopus-tiny", examples=10, steps=30, repeats_itself=True)


def test_the_state_machine_agrees_with_the_model() -> None:
    """Catches: any primitive that does something else than the model says, on short random programs."""
    run_state_machine_as_test(StoreMachine, settings=TINY.settings())


def test_drawn_episodes_agree_with_the_model() -> None:
    """Catches: the same on longer ones, with every kind of memory, and that all of it is given back."""
    worlds = [carry_out(drawn(seed, operations=120)) for seed in range(30)]
    assert len({world.setup for world in worlds}) > len(SETUPS) // 2
    assert sum(world.refusals for world in worlds) > 5, "memory should run short now and then"
    assert sum(world.copier.ended for world in worlds) > 5, "the host tier should be used"


def test_no_failing_allocation_leaves_a_trace() -> None:
    """Catches: a reservation that keeps half of what it took, a table changed before the last allocation."""
    struck = Counter(attempt.what for attempt in attempts(3, histories=len(SETUPS)))
    assert struck["allocation"] > 20 and struck["copy"] > 0


@pytest.mark.parametrize("scenario", SCENARIOS, ids=lambda scenario: scenario.__name__)
def test_interleavings_are_harmless(scenario: Scenario) -> None:
    """Catches: a lock that is missing somewhere, on a sample of all interleavings."""
    choose = random.Random(0).randrange
    runs = list(sample(scenario, choose=choose, count=15))
    assert [run.error for run in runs if run.error is not None] == []
    assert len({run.choices for run in runs}) > 1, "the bodies should be able to interleave"


def test_one_scenario_in_all_its_interleavings() -> None:
    """Catches: a search that ends early: three bodies that start at once can finish in at least 3! orders."""
    runs = list(explore(SCENARIOS[1]))
    assert all(run.error is None for run in runs) and len(runs) >= 6


@pytest.mark.parametrize("script", SCRIPTS, ids=lambda script: script.__name__)
def test_cancellation_at_every_await(script: Script) -> None:
    """Catches: a wait that stays open when its task is cancelled, and a waiter that never runs again."""
    assert cancel_everywhere(script) >= 2


@pytest.mark.parametrize("setup", CROWDED, ids=lambda setup: f"{setup.pages}-{setup.states}")
def test_a_crowd_leaves_the_store_empty(setup: Setup) -> None:
    """Catches: an unguarded count: pages lost, or owned twice, when many threads call at once."""
    report = rush(1, members=8, operations=150, setup=setup)
    assert report.calls.total() == 8 * 150 and len(report.calls) > 10


@pytest.mark.parametrize("canary", CANARIES, ids=lambda canary: canary.name)
def test_planted_faults_are_found(canary: Canary) -> None:
    """Catches: a comparison that was weakened until it sees nothing."""
    assert found_after(canary, seed=0, episodes=50, operations=60)
