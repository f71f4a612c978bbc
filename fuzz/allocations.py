"""Every allocation fails: for each primitive, the N-th allocation or copy that it makes, once and from there on.

N counts up until the call makes fewer. Afterwards all must be as it was before the call or as a call that succeeded
leaves it, no memory may be missing, and the same call must work once the fault is gone.
"""

from __future__ import annotations

import random
from collections.abc import Iterator
from dataclasses import dataclass

from fuzz.comparison import compare
from fuzz.episodes import SETUPS
from fuzz.faults import Failure
from fuzz.liveness import come_to_rest, settle
from fuzz.moves import apply
from fuzz.operations import ARGUMENTS, PAGE, Operation, draw
from fuzz.world import Setup, World

FAULTS = ("fail_allocation", "copier_fails", "spoil_host", "heal", "weights")
BUILDING = {
    "root": 1, "append": 8, "compute": 8, "fork": 3, "read": 3, "commit": 1, "end_turn": 1, "preempt": 1, "offload": 1,
    "deliver": 2, "root_from": 1,
}  # fmt: skip
"""What a world is made of before something fails: nothing that ends a thread, but for some commits."""
LAST_MOVES = ("preempt", "append", "append", "drop", "append")
MOST_FAILURES = 40

Picture = dict[int, tuple[int, tuple[int, ...], int, int]]
"""For each held segment: its tokens, where others stand, its pages on either tier, its computed tokens."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Attempt:
    """One call with one planted failure."""

    setup: Setup
    operation: Operation
    what: str  # "allocation" or "copy"
    countdown: int
    persistent: bool


def attempts(seed: int, *, histories: int) -> Iterator[Attempt]:
    """Every attempt over so many drawn histories. Raises AssertionError where one leaves a trace."""
    rng = random.Random(seed)
    for number in range(histories):
        setup, history_seed = SETUPS[number % len(SETUPS)], rng.randrange(2**32)
        kinds = sorted(set(ARGUMENTS) - set(FAULTS))
        for operation in [draw(rng, {kind: 1.0}, 1)[0] for kind in kinds * 2]:
            for what in ("allocation", "copy"):
                for persistent in (False, True):
                    yield from _until_none_fails(setup, history_seed, operation, what, persistent)


def _until_none_fails(
    setup: Setup, history_seed: int, operation: Operation, what: str, persistent: bool
) -> Iterator[Attempt]:
    for countdown in range(1, MOST_FAILURES):
        world = _history(setup, history_seed)
        failure = world.failure if what == "allocation" else world.copier.failure
        if not _attempt(world, operation, failure, countdown, persistent):
            return
        yield Attempt(setup=setup, operation=operation, what=what, countdown=countdown, persistent=persistent)
    raise AssertionError(f"{operation} made {MOST_FAILURES} attempts to allocate or copy")


def _attempt(world: World, operation: Operation, failure: Failure, countdown: int, persistent: bool) -> bool:
    """Whether the failure struck."""
    before, refusals = _picture(world), world.refusals
    failure.arm(countdown, persistent=persistent)
    apply(world, operation)
    failure.heal()
    if not failure.hits:
        return False
    settle_copies(world)
    compare(world)
    if world.refusals > refusals:
        _expect_nothing_gained(before, _picture(world))
        apply(world, operation)
        compare(world)
    come_to_rest(world)
    return True


def settle_copies(world: World) -> None:
    """Copies that are in flight arrive, so that what they carry counts where it belongs."""
    world.copier.deliver_all()


def _history(setup: Setup, seed: int) -> World:
    """A world in the middle of things, always the same for the same seed; no step is open."""
    rng = random.Random(seed)
    world = World(setup)
    for operation in draw(rng, BUILDING, 60):
        apply(world, operation)
    settle(world)
    for number, kind in enumerate(LAST_MOVES):  # So that there is something to compute, to restore and to evict.
        arguments = {"thread": number, "count": 2 * PAGE + 1, "value": number}
        apply(world, Operation(kind=kind, arguments={name: arguments[name] for name in ARGUMENTS[kind]}))
    return world


def _picture(world: World) -> Picture:
    return {
        segment.index: (
            len(segment.tokens),
            tuple(sorted(segment.references)),
            sum(handle >= 0 for handle in segment.pages) + len(segment.host_pages),
            segment.computed,
        )
        for segment in world.graph.segments
        if segment.held
    }


def _expect_nothing_gained(before: Picture, after: Picture) -> None:
    """A refused call may have cost cache, and KV that is computed again; it may not have left anything behind."""
    assert after.keys() <= before.keys(), f"a refused call left segments {after.keys() - before.keys()}"
    for index, (tokens, standing, pages, computed) in after.items():
        was_tokens, was_standing, was_pages, was_computed = before[index]
        assert tokens == was_tokens, f"a refused call wrote to segment {index}"
        assert set(standing) <= set(was_standing), f"a refused call stands on segment {index} at {standing}"
        assert pages <= was_pages, f"a refused call left {pages} pages on segment {index}, before it had {was_pages}"
        assert computed <= was_computed, f"a refused call computed segment {index}"


