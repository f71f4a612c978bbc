"""The state machine: Hypothesis chooses the operations, and shrinks what fails.

Which kinds of operations are on is drawn first, so that some runs never drop and others never compute. Every step is
followed by the full comparison, and every run by the liveness phase.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from hypothesis import event, target
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from fuzz.comparison import compare
from fuzz.episodes import SETUPS, Episode
from fuzz.liveness import come_to_rest
from fuzz.moves import apply
from fuzz.operations import ALWAYS_ON, ARGUMENTS, WEIGHTS, Operation
from fuzz.world import Setup, World

OPTIONAL = sorted(set(ARGUMENTS) - ALWAYS_ON)


class StoreMachine(RuleBasedStateMachine):
    """The rules, one for each kind of operation, are added below.

    Attributes:
        last_episode: What the latest run did, to be saved when it failed: Hypothesis ends with the smallest.
    """

    last_episode: Episode | None = None

    def __init__(self) -> None:
        super().__init__()
        self.world: World | None = None
        self.on: frozenset[str] = ALWAYS_ON
        self.operations: list[Operation] = []
        self.agreed = False

    @initialize(setup=st.sampled_from(SETUPS), on=st.frozensets(st.sampled_from(OPTIONAL), min_size=4))
    def begin(self, setup: Setup, on: frozenset[str]) -> None:
        """An empty world, and the kinds of operations that are on."""
        self.world, self.on = World(setup), ALWAYS_ON | on

    def do(self, operation: Operation) -> None:
        """One operation on both sides."""
        assert self.world is not None
        self.operations.append(operation)
        type(self).last_episode = Episode(setup=self.world.setup, operations=tuple(self.operations))
        self.agreed = False
        apply(self.world, operation)

    @invariant()
    def both_sides_agree(self) -> None:
        """The whole comparison."""
        if self.world is not None:
            compare(self.world)
            self.agreed = True

    def teardown(self) -> None:
        """The liveness phase, and what runs should be searched for."""
        if self.world is None or not self.agreed:
            return  # What is wrong was said already.
        shared, depth = _sharing(self.world)
        target(float(shared), label="segments that several see")
        target(float(depth), label="segments on one path")
        target(float(self.world.refusals), label="refusals for want of memory")
        target(float(self.world.copier.ended), label="copies between the tiers")
        event(f"host tier: {self.world.setup.host_pages >= 0}, states: {bool(self.world.setup.states)}")
        come_to_rest(self.world)


def _sharing(world: World) -> tuple[int, int]:
    segments = world.graph.segments
    shared = sum(len(segment.references) > 1 for segment in segments)
    return shared, max((segment.depth for segment in segments), default=0)


def _rule(kind: str) -> Callable[..., Any]:
    def step(self: StoreMachine, **arguments: int) -> None:
        self.do(Operation(kind=kind, arguments=arguments))

    step.__name__, step.__doc__ = f"do_{kind}", f"One operation of the kind `{kind}`."
    drawn: dict[str, Any] = {name: st.sampled_from(values) for name, values in ARGUMENTS[kind].items()}
    as_rule: Any = rule(**drawn)
    ruled: Callable[..., Any] = precondition(lambda self: kind in self.on)(as_rule(step))
    return ruled


for _kind in ARGUMENTS:  # Hypothesis draws among rules evenly, so what is wanted more often is there more than once.
    for _copy in range(1 + int(WEIGHTS[_kind] // 3)):
        setattr(StoreMachine, f"do_{_kind}_{_copy}", _rule(_kind))
