"""The attacks that the modes are made of. Each prints what it did and raises `Found` for the first fault it finds."""

from __future__ import annotations

import random
from collections import Counter
from functools import partial

import hypothesis
from hypothesis.stateful import run_state_machine_as_test

from fuzz.allocations import attempts
from fuzz.canary import CANARIES, found_after
from fuzz.cancellations import SCRIPTS, cancel_everywhere
from fuzz.crowd import SETUPS as CROWDED
from fuzz.crowd import rush
from fuzz.episodes import FINDINGS, Episode, carry_out, drawn
from fuzz.exploration import Interleaving, explore, sample
from fuzz.machine import StoreMachine
from fuzz.profiles import Profile
from fuzz.progress import Progress
from fuzz.scenarios import SCENARIOS
from fuzz.traces import CORPUS, replay, save, shrunk


class Found(Exception):
    """A fault of the store, and how to see it again."""


def saved_cases() -> None:
    """Every trace that was ever saved."""
    progress = Progress("saved cases", "cases")
    for path in sorted(CORPUS.glob("*.jsonl")):
        try:
            replay(path)
        except Exception as error:
            raise Found(f"{path} fails again: {error}") from error
        progress.add()
    progress.end()


def state_machine(profile: Profile, *, seed: int) -> None:
    """Hypothesis on the state machine."""
    progress = Progress(f"state machine, profile {profile.name}, seed {seed}", "runs")
    machine = hypothesis.seed(seed)(StoreMachine) if not profile.repeats_itself else StoreMachine
    try:
        run_state_machine_as_test(machine, settings=profile.settings())
    except Exception as error:
        episode = StoreMachine.last_episode
        where = save(episode, f"machine-{seed}") if episode is not None else "nothing to replay"
        raise Found(f"the state machine fails, saved as {where}: {error}") from error
    progress.add(profile.examples)
    progress.end()


def random_episodes(seed: int, *, count: int, operations: int) -> int:
    """Drawn episodes, `operations` long, each with the kinds that its seed switches on; returns how many operations."""
    progress = Progress(f"random episodes from seed {seed}", "operations")
    refusals = copies = 0
    for number in range(seed, seed + count):
        episode = drawn(number, operations=operations)
        try:
            world = carry_out(episode)
        except Exception as error:
            where = save(shrunk(episode, partial(_fails_alike, kind=type(error))), f"episode-{number}")
            raise Found(f"episode {number} fails, saved as {where}: {error!r}") from error
        refusals, copies = refusals + world.refusals, copies + world.copier.ended
        progress.add(operations)
    progress.end(f"{refusals:,} refusals for want of memory, {copies:,} copies between the tiers")
    return progress.count


def failing_allocations(seed: int, *, histories: int) -> None:
    """Each allocation and copy of each primitive fails, once and from there on."""
    progress = Progress(f"failing allocations and copies, seed {seed}", "planted failures")
    struck: Counter[str] = Counter()
    try:
        for attempt in attempts(seed, histories=histories):
            struck[attempt.operation.kind] += 1
            progress.add()
    except Exception as error:
        raise Found(f"a planted failure leaves a trace, seed {seed}: {error!r}") from error
    progress.end(", ".join(f"{kind} {count}" for kind, count in struck.most_common()))


def interleavings(*, exhaustive: bool, seed: int, count: int = 0) -> int:
    """All interleavings of every scenario, or a drawn sample of each; returns how many."""
    total = 0
    for scenario in SCENARIOS:
        progress = Progress(f"interleavings of {scenario.__name__}", "interleavings")
        choose = random.Random(seed).randrange
        for one in explore(scenario) if exhaustive else sample(scenario, choose=choose, count=count):
            if one.error is not None:
                raise Found(_story(scenario.__name__, one)) from one.error
            progress.add()
        progress.end("all of them" if exhaustive else f"a sample, seed {seed}")
        total += progress.count
    return total


def cancelled_awaits() -> None:
    """Cancellation at every await of every script."""
    progress = Progress("cancellation at every await", "awaits")
    for script in SCRIPTS:
        try:
            progress.add(cancel_everywhere(script))
        except Exception as error:
            raise Found(f"{script.__name__}: {error!r}") from error
    progress.end()


def crowds(seed: int, *, rounds: int, members: int, operations: int) -> int:
    """Many Python threads at once, again and again, in each set-up in turn; returns how many calls they made."""
    progress = Progress(f"{members} threads at once, seed {seed}", "calls")
    refusals: Counter[str] = Counter()
    for number in range(rounds):
        try:
            report = rush(seed + number, members=members, operations=operations, setup=CROWDED[number % len(CROWDED)])
        except Exception as error:
            raise Found(f"crowd {seed + number}: {error!r}") from error
        refusals += report.refusals
        progress.add(report.calls.total())
    named = ", ".join(f"{name} {count:,}" for name, count in refusals.most_common(5))
    progress.end(f"{rounds} times, every page free each time; refused: {named}")
    return progress.count


def canaries(seed: int) -> list[str]:
    """Plants each fault; returns the names of those that were not found."""
    missed = []
    for canary in CANARIES:
        episodes = found_after(canary, seed=seed, episodes=50, operations=60)
        print(f"canary: {canary.name}: " + (f"found in episode {episodes}" if episodes else "NOT FOUND"), flush=True)
        missed += [] if episodes else [canary.name]
    return missed


def _fails_alike(episode: Episode, kind: type[Exception]) -> bool:
    try:
        carry_out(episode)
    except FINDINGS as error:
        return type(error) is kind
    return False


def _story(name: str, one: Interleaving) -> str:
    steps = " ".join(f"{step.worker}@{step.point}" for step in one.steps)
    return f"{name} fails with choices {list(one.choices)} ({steps}): {one.error!r}"
