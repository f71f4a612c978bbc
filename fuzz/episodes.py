"""Whole runs: a set-up and a list of operations, carried out to the end and checked on the way."""

from __future__ import annotations

import random
from dataclasses import dataclass

from fuzz.comparison import compare
from fuzz.liveness import come_to_rest
from fuzz.moves import apply
from fuzz.operations import Operation, draw, draw_swarm
from fuzz.world import Setup, World
from octopus.core.errors import InvariantViolation, OctopusError

SETUPS = (
    Setup(pages=400),
    Setup(pages=30),
    Setup(pages=10),
    Setup(pages=60, page_size=1),
    Setup(pages=40, states=40),
    Setup(pages=24, states=6),
    Setup(pages=16, host_pages=100, sealed=1),
    Setup(pages=16, host_pages=100, prompt=0),
    Setup(pages=12, host_pages=3, prompt=0, sealed=1),
    Setup(pages=12, host_pages=0),
    Setup(pages=16, states=6, host_pages=30, host_states=8, sealed=1),
    Setup(pages=16, states=6, host_pages=30, host_states=3, prompt=0),
)
FINDINGS = (AssertionError, InvariantViolation, OctopusError, LookupError, TypeError, ValueError, AttributeError)
"""How a fault of the store shows: both sides disagree, an audit fails, or a call raises what nobody expects."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Episode:
    """What is needed to do it all again."""

    setup: Setup
    operations: tuple[Operation, ...]


def drawn(seed: int, *, operations: int) -> Episode:
    """The episode that `seed` names; which kinds of operations are on is drawn first."""
    rng = random.Random(seed)
    return Episode(setup=rng.choice(SETUPS), operations=tuple(draw(rng, draw_swarm(rng), operations)))


def carry_out(episode: Episode) -> World:
    """Does all of it, comparing on the way, then demands that all comes to rest. Raises whatever it finds wrong."""
    world = World(episode.setup)
    for operation in episode.operations:
        apply(world, operation)
        compare(world)
    come_to_rest(world)
    return world
