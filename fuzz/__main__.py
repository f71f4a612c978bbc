"""`python -m fuzz MODE`: exits 0 when nothing was found (for `canary`: when everything that was planted was)."""

from __future__ import annotations

import argparse
import secrets
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

from fuzz import attacks, mutants
from fuzz.attacks import Found
from fuzz.canary import CANARIES
from fuzz.equivalents import LISTING, read_equivalents, stale
from fuzz.profiles import EXPLORE, SMOKE
from fuzz.record import Record
from fuzz.scenarios import SCENARIOS
from fuzz.traces import replay


class Done(NamedTuple):
    """What a run that found nothing did: counted calls of the store's primitives, 0 for none, and in words."""

    operations: int
    figures: str


def smoke(seed: int) -> Done:
    """Seconds: always the same examples, a little of everything."""
    attacks.saved_cases()
    attacks.state_machine(SMOKE, seed=0)
    operations = attacks.random_episodes(0, count=150, operations=150)
    attacks.failing_allocations(0, histories=6)
    attacks.interleavings(exhaustive=False, seed=0, count=25)
    attacks.cancelled_awaits()
    operations += attacks.crowds(0, rounds=4, members=6, operations=200)
    return Done(operations, "a little of everything")


def ci(seed: int) -> Done:
    """Two or three minutes: fresh examples by the seed, and all interleavings."""
    attacks.state_machine(EXPLORE, seed=seed)
    operations = attacks.random_episodes(seed, count=500, operations=250)
    attacks.failing_allocations(seed, histories=24)
    attacks.interleavings(exhaustive=True, seed=seed)
    operations += attacks.crowds(seed, rounds=4, members=16, operations=1_000)
    return Done(operations, "fresh examples of everything, and all interleavings")


def soak(seed: int) -> Done:
    """Five minutes and more: 300,000 operations from each of four seeds."""
    seeds = [seed + number * 1_000_000 for number in range(4)]
    done = [attacks.random_episodes(each, count=1_000, operations=300) for each in seeds]
    counts = " + ".join(f"{count:,}" for count in done)
    return Done(sum(done), f"{counts} operations, seeds {', '.join(map(str, seeds))}")


def threads(seed: int) -> Done:
    """Minutes: 16 Python threads with 10,000 calls each, 20 times."""
    calls = attacks.crowds(seed, rounds=20, members=16, operations=10_000)
    return Done(calls, f"16 threads with 10,000 calls each, 20 times: {calls:,} calls, every page free after each time")


def interleavings(seed: int) -> Done:
    """A minute: all interleavings of every scenario of three threads."""
    count = attacks.interleavings(exhaustive=True, seed=seed)
    return Done(0, f"all {count:,} interleavings of {len(SCENARIOS)} scenarios of three threads")


def canary(seed: int) -> Done:
    """Plants faults one at a time. Raises Found if one of them is not noticed."""
    missed = attacks.canaries(seed)
    if missed:
        raise Found(f"the fuzzers are blind to: {', '.join(missed)}")
    return Done(0, f"all of {len(CANARIES)} planted faults found")


MODES: dict[str, Callable[[int], Done]] = {
    mode.__name__: mode for mode in (smoke, ci, soak, threads, interleavings, canary)
}


def hunt(seed: int, count: int, *, jobs: int, timeout_s: float) -> Done:
    """Mutants of the core. Raises Found if more than one in twenty survives, or if an equivalent one is killed."""
    claims = read_equivalents(LISTING.read_text())
    for claim in stale(claims, mutants.all_mutants()):
        print(f"no such line any more: {claim.file}: {claim.text}")
    verdicts: list[mutants.Verdict] = []
    hunted = mutants.run(seed, count, jobs=jobs, timeout_s=timeout_s)
    if next(hunted).verdict != "survived":
        raise Found("the core as it is does not survive the attacks, so verdicts on mutants say nothing")
    for verdict in hunted:
        verdicts.append(mutants.judged(verdict, claims))
        print(f"{len(verdicts)}/{count} {verdicts[-1]}", flush=True)
    figures = mutants.summary(verdicts)
    survivors = sum(verdict.verdict == "survived" for verdict in verdicts)
    if survivors > count * 0.05:
        raise Found(f"{figures}; show which survivors are equivalent, or test what is not")
    if any(verdict.verdict == "refuted" for verdict in verdicts):
        raise Found(f"{figures}; a claim of {LISTING.name} is wrong")
    return Done(0, figures)


def main(arguments: list[str] | None = None) -> int:
    """Runs a mode; returns the exit status."""
    parser = argparse.ArgumentParser(prog="python -m fuzz", description=__doc__)
    parser.add_argument("mode", choices=[*MODES, "mutants", "replay"])
    parser.add_argument("file", nargs="?", type=Path, help="for `replay`: a saved case")
    parser.add_argument("--seed", type=int, default=None, help="else one is drawn and printed")
    parser.add_argument("--count", type=int, default=300, help="for `mutants`: how many")
    parser.add_argument("--jobs", type=int, default=1, help="for `mutants`: how many at a time")
    parser.add_argument("--timeout-s", type=float, default=30.0, help="for `mutants`: processor seconds an attack")
    parser.add_argument("--json", type=Path, help="a file that gets one line of JSON about the run")
    chosen = parser.parse_args(arguments)
    if chosen.mode == "replay" and chosen.file is None:
        parser.error("replay needs a file")
    seed = secrets.randbelow(1_000_000) if chosen.seed is None else chosen.seed
    began_s = time.monotonic()
    print(f"fuzz {chosen.mode}, seed {seed}", flush=True)
    try:
        done = _run(chosen, seed)
        status, result = 0, f"clean; {done.figures}"
    except Found as found:
        done, status, result = Done(0, ""), 1, f"found: {found}"
    seconds = round(time.monotonic() - began_s, 1)
    print(f"fuzz {chosen.mode}, seed {seed}, {seconds} s: {result}", file=sys.stderr if status else sys.stdout)
    if chosen.json is not None:
        record = Record(kind=chosen.mode, seed=seed, operations=done.operations, seconds=seconds, result=result)
        record.append_to(chosen.json)
    return status


def _run(chosen: argparse.Namespace, seed: int) -> Done:
    if chosen.mode == "mutants":
        return hunt(seed, chosen.count, jobs=chosen.jobs, timeout_s=chosen.timeout_s)
    if chosen.mode == "replay":
        replay(chosen.file)
        return Done(0, chosen.file.name)
    return MODES[chosen.mode](seed)


if __name__ == "__main__":
    sys.exit(main())
