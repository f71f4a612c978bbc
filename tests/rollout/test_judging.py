"""Episodes that a judge rewards together, after they were played.

Catches: an environment that is asked as well, which may be dear; a judge that is asked once a task; a judge that raises
and leaves threads or pages behind, so that the next groups never complete; records in the order of endings.
"""

from collections.abc import Sequence
from dataclasses import replace

import pytest
from toy_job import Box, PolicyEngine, box, codec, say

from octopus.core.thread import Thread
from octopus.rollout.codec import Control
from octopus.rollout.environment import Environment, Task
from octopus.rollout.loop import Rollouts
from octopus.rollout.modes import MODES
from octopus.rollout.records import RolloutRecord
from octopus.rollout.sampling import Draw

SEEDS = {"a": (1, 2), "b": (3, 4)}


class Silent(Box):
    """An environment that must not be asked."""

    def score(self, answer: str, *, lost: object = ()) -> float:
        raise AssertionError("scored by the environment")


class Judge:
    """Rewards by place, or refuses."""

    def __init__(self, *, refuses: bool = False) -> None:
        self.refuses = refuses
        self.asked: list[int] = []

    def judge(self, environments: Sequence[Environment], records: Sequence[RolloutRecord]) -> list[RolloutRecord]:
        assert len(environments) == len(records)
        self.asked.append(len(records))
        if self.refuses:
            raise ValueError("no judgement")
        return [
            replace(record, episode=replace(record.episode, reward=float(number)))
            for number, record in enumerate(records)
        ]


def answering(record: Thread, draw: Draw) -> int:
    return say(Control.ANSWER, "yes")[draw.made]


def test_records_stand_in_the_order_of_seeds_whoever_ends_first() -> None:
    """Row 35 of public bugs: P1G1, P2G1, P1G2. Catches: records in the order in which episodes ended.

    The first rollout of each task searches before it answers, so the second one ends first.
    """

    def at_leisure(record: Thread, draw: Draw) -> int:
        said = say(Control.ANSWER, "yes")
        return ([*say(Control.SEARCH, "snow"), *said] if draw.seed % 2 else said)[draw.made]

    def search(text: str) -> str:
        return "fine"

    engine = PolicyEngine(at_leisure)
    tasks = [Task(name=name, environment=box(search), seeds=seeds) for name, seeds in SEEDS.items()]
    groups = Rollouts(engine, codec(), MODES["single"]).run(tasks)
    found = {name: tuple(record.seed for record in group) for name, group in zip(SEEDS, groups, strict=True)}
    assert found == SEEDS
    assert [[len(record.events[0]) for record in group] for group in groups] == [[2, 1], [2, 1]]
    assert [record.episode.name for group in groups for record in group] == ["a/0", "a/1", "b/0", "b/1"]


def test_a_judge_is_asked_once_and_its_refusal_leaves_nothing() -> None:
    engine = PolicyEngine(answering)
    rollouts = Rollouts(engine, codec(), MODES["octopus"])
    before = engine.held()
    judge, strict = Judge(), Judge(refuses=True)
    silent = Silent(lambda turn: {})

    def tasks(first: Judge) -> list[Task]:
        own = Task(name="own", environment=Box(lambda turn: {}), seeds=(7,))
        return [
            Task(name="a", environment=silent, seeds=(1, 2), judge=first),
            own,
            Task(name="b", environment=silent, seeds=(3,), judge=first),
        ]

    with pytest.raises(ValueError, match="no judgement"):
        rollouts.run(tasks(strict))
    assert engine.held() == before
    groups = rollouts.run(tasks(judge))
    assert [[record.episode.reward for record in group] for group in groups] == [[0.0, 1.0], [1.0], [2.0]]
    assert judge.asked == [3] and [len(group) for group in groups] == [2, 1, 1]
    assert [record.seed for group in groups for record in group] == [1, 2, 7, 3]
    assert engine.held() == before
