"""Operations: what a fuzzer does to a store, as plain data that can be drawn, saved and replayed.

An argument is a small number that the world takes modulo what there is to choose from, so every sequence of operations
can be carried out, and one that was shortened or read from a file means the same again.
"""

from __future__ import annotations

import random
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

PAGE = 4
SIZES = (1, 1, 1, 2, PAGE - 1, PAGE, PAGE + 1, 2 * PAGE, 2 * PAGE + 1, 0)
ANY = tuple(range(24))
FEW = tuple(range(6))
YES_NO = (0, 1)

ARGUMENTS: Mapping[str, Mapping[str, Sequence[int]]] = {
    "root": {},
    "root_from": {"thread": ANY, "keep": (0, 1, 2, PAGE, PAGE + 1, 99), "more": (0, 1, PAGE), "salt": (0, 0, 0, 1)},
    "append": {"thread": ANY, "count": SIZES, "value": FEW},
    "fork": {"thread": ANY, "n": (1, 2, 2, 3, 0)},
    "fork_snapshot": {"snapshot": ANY, "n": (1, 2)},
    "read": {"thread": ANY, "source": ANY, "last": (0, 0, 1, 2, PAGE, PAGE + 1), "original": (0, 0, 1)},
    "wait": {"thread": ANY, "first": ANY, "second": ANY, "either": YES_NO, "snapshot": YES_NO, "timeout_s": (0, 0, 5)},
    "tick": {"seconds": (1, 5, 10)},
    "mark": {"thread": ANY},
    "rewind": {"thread": ANY, "back": (0, 1, 1, 2, PAGE, PAGE + 1, 99)},
    "rewind_to_mark": {"thread": ANY, "mark": FEW},
    "rewind_to_snapshot": {"thread": ANY, "snapshot": FEW},
    "commit": {"thread": ANY, "span": (0, 1), "start": FEW, "length": FEW, "keep_running": (0, 1, 1)},
    "cancel": {"thread": ANY},
    "fail": {"thread": ANY},
    "drop": {"thread": ANY},
    "compute": {"thread": ANY, "other": ANY, "hidden": YES_NO},
    "begin_step": {"thread": ANY, "other": ANY},
    "pass": {},
    "end_step": {},
    "end_turn": {"thread": ANY},
    "prioritise": {"thread": ANY, "priority": (-1, 0, 1)},
    "offload": {"thread": ANY},
    "deliver": {"transfer": FEW, "outcome": (0, 0, 0, 1, 2, 3, 4)},
    "deliver_late": {},
    "copier_fails": {"fails": YES_NO},
    "spoil_host": {"page": ANY},
    "preempt": {"thread": ANY},
    "make_room": {"pages": (0, 0, 1, 2, 4, 99), "states": (0, 1, 2, 5)},
    "evict": {},
    "trim": {},
    "weights": {},
    "stale": {"thread": ANY},
    "fail_allocation": {"countdown": (1, 2, 3), "persistent": (0, 0, 1)},
    "heal": {},
}
"""The arguments of each kind of operation, with the values that a fuzzer draws them from."""

WEIGHTS: Mapping[str, float] = {
    "root": 2, "root_from": 3, "append": 16, "fork": 8, "fork_snapshot": 2, "read": 7, "wait": 2, "tick": 1, "mark": 2,
    "rewind": 4, "rewind_to_mark": 2, "rewind_to_snapshot": 1, "commit": 4, "cancel": 0.3, "fail": 0.2, "drop": 2.5,
    "compute": 18, "begin_step": 2, "pass": 4, "end_step": 2, "end_turn": 2, "prioritise": 1, "offload": 6,
    "deliver": 8, "deliver_late": 0.5, "copier_fails": 0.2, "spoil_host": 0.5, "preempt": 2, "make_room": 2,
    "evict": 2, "trim": 0.5, "weights": 0.05, "stale": 1, "fail_allocation": 1, "heal": 4,
}  # fmt: skip
"""How often each kind is drawn, relative to the others that are on."""

ALWAYS_ON = frozenset({"root", "append", "compute", "heal"})


@dataclass(frozen=True, kw_only=True, slots=True)
class Operation:
    """One thing to do."""

    kind: str
    arguments: Mapping[str, int]

    def __post_init__(self) -> None:
        if self.kind not in ARGUMENTS or set(self.arguments) != set(ARGUMENTS[self.kind]):
            raise ValueError(f"no operation {self.kind} with arguments {sorted(self.arguments)}")


def draw_swarm(rng: random.Random) -> dict[str, float]:
    """Which kinds are on, and how often each is drawn: a random part of them all, with random weights.

    A run without drops, say, fills the pool as no run with all kinds on ever would.
    """
    return {
        kind: weight * rng.choice((0.3, 1, 1, 3))
        for kind, weight in WEIGHTS.items()
        if kind in ALWAYS_ON or rng.random() < 0.7
    }


def draw(rng: random.Random, swarm: Mapping[str, float], count: int) -> list[Operation]:
    """So many operations of the kinds that are on."""
    kinds = rng.choices(list(swarm), list(swarm.values()), k=count)
    return [
        Operation(kind=kind, arguments={name: rng.choice(values) for name, values in ARGUMENTS[kind].items()})
        for kind in kinds
    ]

