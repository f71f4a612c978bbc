"""Rows 48 and 49 of public bugs: nothing is rolled out or evaluated on KV that other weights wrote.

A thread of the run's graph is held from before: once the weights are others, the graph must refuse it.

Catches: a job that changes weights, by a step or by a save that it goes on from or ends with, and tells its engine
nothing; counterfactual answers that are decoded on what the engine computed in the step before.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
import tiny_policy
from reporters import Reporters
from toy_tasks import ToyTasks

from octopus.core.errors import StaleWeights
from octopus.core.graph import Graph
from octopus.core.thread import Thread
from octopus.rollout.cancelling import Cancelling
from octopus.train.credit.regenerate import Regenerate
from octopus.train.job import Job
from octopus.train.job_config import (
    EvaluationConfig,
    GrpoConfig,
    ImitationConfig,
    JobConfig,
    JobRunConfig,
    RolloutConfig,
    TaskConfig,
)
from octopus.train.step import StepResult, train_step
from octopus.train.watching import Nobody


class Holder(Nobody):
    """Holds a thread as it was at the beginning, and after each step that the run has taken."""

    def __init__(self) -> None:
        self.held: list[Thread] = []

    def rollouts(self, graph: Graph, cancelling: Cancelling) -> None:
        self._graph = graph
        self._hold()

    def step(self, step: int, of: int, figures: Mapping[str, Any]) -> None:
        self._hold()

    def stale(self) -> list[bool]:
        """Of each of them, whether the graph refuses it."""
        return [is_stale(self._graph, thread) for thread in self.held]

    def _hold(self) -> None:
        thread = self._graph.thread()
        self._graph.append(thread, [1])
        self.held.append(thread)


def is_stale(graph: Graph, thread: Thread) -> bool:
    try:
        graph.append(thread, [1])
    except StaleWeights:
        return True
    return False


def job(folder: Path, watch: Holder, *, steps: int, resume: bool = False) -> Job:
    config = JobConfig(
        kind="job",
        run=JobRunConfig(folder=str(folder), resume=resume),
        task=TaskConfig(parts=(1,)),
        rollout=RolloutConfig(turn_tokens=4, turns=1, pages=128, state_slots=64),
        imitation=ImitationConfig(steps=1, episodes=1),
        grpo=GrpoConfig(steps=steps, questions=1, rollouts=2),
        evaluation=EvaluationConfig(validation_questions=1, test_questions=1),
    )
    tasks = ToyTasks(config)
    return Job(
        config, model=tiny_policy.model(), codec=tiny_policy.codec(), tasks=tasks, report=lambda _: None, watch=watch
    )


def test_a_step_and_a_save_that_was_loaded_end_what_older_weights_wrote(tmp_path: Path) -> None:
    stages = Holder()
    told: list[list[bool]] = []
    took = stages.step

    def step(*arguments: Any) -> None:
        told.append(stages.stale())
        took(*arguments)

    stages.step = step  # type: ignore[method-assign]
    job(tmp_path / "run", stages, steps=1).run()
    assert told == [[True], [True, True]]  # by imitation, by reinforcement
    assert stages.stale() == [True, True, True]  # by the best save, which the last evaluation is of

    resumed = Holder()
    job(tmp_path / "run", resumed, steps=2, resume=True)
    assert resumed.stale() == [True]


def test_the_trainer_has_the_memory_of_the_rollouts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Catches: a pool of keys that stays while a step is computed, or that is not there while rollouts are played."""
    one = job(tmp_path / "run", Holder(), steps=1)
    released: list[bool] = []

    def step(*arguments: Any, **settings: Any) -> StepResult:
        released.append(one._engine.storage.released)
        return train_step(*arguments, **settings)

    monkeypatch.setattr("octopus.train.stages.train_step", step)
    assert one._engine.storage.released
    one.run()
    assert released == [True, True]  # By imitation, by reinforcement.
    assert one._engine.graph.stats().counters.tokens_computed > 0


def test_answers_are_decoded_again_with_the_weights_of_now() -> None:
    engine = Reporters(("red",))
    again = Regenerate(
        engine, tiny_policy.codec(), scope="closure", samples=1, temperature=1.0, turn_tokens=32
    )
    thread = engine.thread([1, 2]).record
    assert not is_stale(engine.graph, thread)
    assert again.values([]) == []
    assert is_stale(engine.graph, thread)
