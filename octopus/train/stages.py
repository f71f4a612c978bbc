"""The two ways in which a job learns, one step at a time: from a script, and from its own rollouts."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from random import Random
from typing import Any, Protocol

import torch

from octopus.models.backbone import Backbone
from octopus.rollout.codec import Codec
from octopus.rollout.dialect import Dialect
from octopus.rollout.environment import Task
from octopus.rollout.records import RolloutRecord
from octopus.rollout.scripted import play_script
from octopus.rollout.spans import NO_SPANS, Spans
from octopus.train.config import LossConfig, OptimizerConfig
from octopus.train.credit.crediting import Crediting
from octopus.train.credit.world import Played
from octopus.train.data.demonstrations import Demonstrations
from octopus.train.footprint import footprint, primitives
from octopus.train.job_config import PAGE_SIZE, JobConfig
from octopus.train.optimizer import set_learning_rate
from octopus.train.packing import Pack, RatedEpisode, bins, evenly, pack_rated
from octopus.train.parallel.balance import Work, deal
from octopus.train.parallel.ranks import ALONE, Ranks
from octopus.train.parallel.sharding import whole
from octopus.train.parallel.shared_rollouts import SharedRollouts
from octopus.train.parallel.split import split
from octopus.train.rating import Rating, comparable, rate
from octopus.train.reference import Reference
from octopus.train.scoring import scored
from octopus.train.step import NOTHING, StepResult, train_step
from octopus.train.tasks import Tasks


@dataclass(frozen=True, kw_only=True, slots=True)
class StageStep:
    """What one step of a stage did.

    Attributes:
        figures: For `metrics.jsonl`.
        records: The episodes it learned from.
    """

    figures: dict[str, Any]
    records: tuple[RolloutRecord, ...]


class Stage(Protocol):
    """A way to learn. The engine is not told here that its weights have changed."""

    name: str
    optimizer: OptimizerConfig

    def step(self, number: int, optimizer: torch.optim.Optimizer) -> StageStep:
        """Takes the stage's step of that number, from 1."""


class Imitation:
    """Every token that a script, or a demonstration, samples is made likelier.

    The loss is the mean negative log-likelihood.
    """

    name = "imitation"

    def __init__(
        self,
        config: JobConfig,
        *,
        backbone: Backbone,
        codec: Dialect,
        tasks: Tasks,
        ranks: Ranks = ALONE,
        spans: Spans = NO_SPANS,
    ) -> None:
        self.optimizer = config.imitation.optimizer
        self._patient = config.imitation.patient
        self._config = config
        self._backbone = backbone
        self._codec = codec
        self._tasks = tasks
        self._demonstrations = None
        if config.imitation.file is not None:
            path, vocabulary = Path(config.imitation.file), codec.vocabulary
            self._demonstrations = Demonstrations.read(path, vocabulary=vocabulary, seed=config.run.seed)
        self._ranks = ranks
        self._spans = spans

    def step(self, number: int, optimizer: torch.optim.Optimizer) -> StageStep:
        """See `Stage`."""
        records = self._records(number)
        packs = imitation_packs(records, budget_tokens=self._config.packing.budget_tokens)
        set_learning_rate(optimizer, self.optimizer, step=number, steps=self._config.imitation.steps)
        with self._spans.span("update"):
            result = train_step(
                self._backbone,
                own_packs(packs, self._backbone, self._ranks),
                optimizer,
                loss=LossConfig(name="likelihood"),
                step=self._config.step,
                ranks=self._ranks,
            )
        return StageStep(figures=asdict(result), records=records)

    def _records(self, number: int) -> tuple[RolloutRecord, ...]:
        """What is imitated in the step of that number."""
        if self._demonstrations is not None:
            return self._demonstrations.draw(number, self._config.imitation.episodes)
        assert isinstance(self._codec, Codec)  # The configuration was refused otherwise.
        mode = self._config.rollout.mode
        return tuple(
            play_script(name, environment, self._codec, mode, patient=Random(name).random() < self._patient)
            for environment in self._tasks.scripted(number)
            for name in [f"imitation-{number}/{environment.question.id}"]
        )


class Reinforcement:
    """Groups of rollouts are compared, and what did better is made likelier."""

    name = "grpo"

    def __init__(
        self,
        config: JobConfig,
        *,
        backbone: Backbone,
        rollouts: SharedRollouts,
        tasks: Tasks,
        crediting: Crediting,
        reference: Reference | None = None,
        ranks: Ranks = ALONE,
        spans: Spans = NO_SPANS,
    ) -> None:
        self.optimizer = config.grpo.optimizer
        self._config = config
        self._backbone = backbone
        self._rollouts = rollouts
        self._tasks = tasks
        self._crediting = crediting
        self._reference = reference
        self._ranks = ranks
        self._spans = spans

    def step(self, number: int, optimizer: torch.optim.Optimizer) -> StageStep:
        """See `Stage`."""
        started = time.perf_counter()
        tools_s = self._rollouts.tool_seconds
        tasks = self._tasks.training(number)
        with self._spans.span("rollout"):
            groups = self._rollouts.run(tasks)
        rollout_seconds = time.perf_counter() - started
        with self._spans.span("credit"):
            ratings, credit_figures = self._rate(tasks, groups)
        records = tuple(record for group in groups for record in group)
        lag = policy_lag(records, self._rollouts.weights_version)
        with self._spans.span("update"):
            result = self._learn(number, ratings, optimizer)
        spent = [after - before for before, after in zip(tools_s, self._rollouts.tool_seconds, strict=True)]
        figures = rollout_figures(records, ratings) | credit_figures | {
            "rollout_seconds": rollout_seconds,
            "tool_seconds": dict(zip(("ok", "failed"), spent, strict=True)),
            "policy_lag": lag,
        }
        return StageStep(figures=figures | asdict(result), records=records)

    def _learn(self, number: int, ratings: Sequence[Rating], optimizer: torch.optim.Optimizer) -> StepResult:
        """Packs what was rated and takes the step's updates."""
        grpo = self._config.grpo
        rated = [one for rating in ratings for one in rating.episodes]
        heard = [one for one in rated if grpo.loss.regularised or not one.silent]
        silent = [one for one in rated if one.silent and not grpo.loss.regularised]
        packs = _packs(heard, budget_tokens=self._config.packing.budget_tokens)
        with whole(self._backbone.model):
            packs = scored(
                self._backbone,
                own_packs(packs, self._backbone, self._ranks),
                loss=grpo.loss,
                step=self._config.step,
                reference=self._reference,
            )
        set_learning_rate(optimizer, self.optimizer, step=number, steps=grpo.steps)
        results = [
            train_step(
                self._backbone,
                packs,
                optimizer,
                loss=grpo.loss,
                step=self._config.step,
                silent=sum((one.counts for one in silent), NOTHING),
                ranks=self._ranks,
            )
            for _ in range(grpo.updates)
        ]
        # The first update's figures: its log-ratios are the mismatch between rollout and trainer.
        return replace(
            results[0],
            updated=all(result.updated for result in results),
            packed_tokens=sum(result.packed_tokens for result in results),
            oom_retries=sum(result.oom_retries for result in results),
            step_seconds=sum(result.step_seconds for result in results),
        )

    def _rate(
        self, tasks: Sequence[Task], groups: Sequence[Sequence[RolloutRecord]]
    ) -> tuple[list[Rating], dict[str, Any]]:
        """Rates all groups, whose branches are credited together, and says what there is to say about the credit."""
        started = time.perf_counter()
        fair = [
            comparable([Played(environment=task.environment, record=record) for record in group])
            for task, group in zip(tasks, groups, strict=True)
        ]
        with whole(self._backbone.model):
            credited = self._crediting.credit([played for group in fair for played in group])
        terms = iter(credited.terms)
        ratings = [
            rate(
                group,
                [next(terms) for _ in group],
                credit=self._config.grpo.credit,
                divide_by_deviation=self._config.grpo.loss.divide_by_deviation,
            )
            for group in fair
        ]
        return ratings, credited.figures | {"credit_seconds": time.perf_counter() - started}


def imitation_packs(records: Sequence[RolloutRecord], *, budget_tokens: int) -> list[Pack]:
    """Packs scripted episodes for the loss `likelihood`: every sampled token has advantage 1."""
    return _packs([evenly(record.episode, 1.0) for record in records], budget_tokens=budget_tokens)


def policy_lag(records: Sequence[RolloutRecord], weights_version: int) -> int:
    """Steps between the oldest weights that sampled what is learned from and those of that version, which learn."""
    sampled = [token for record in records for token in record.episode.sampled if token.live]
    return weights_version - min((token.segment.weights_version for token in sampled), default=weights_version)


def rollout_figures(records: Sequence[RolloutRecord], ratings: Sequence[Rating]) -> dict[str, Any]:
    """What there is to say about the rollouts of one step, their wall time left aside."""
    episodes = [record.episode for record in records]
    return {
        "reward": sum(episode.reward for episode in episodes) / len(episodes),
        "exact_match": sum(record.correct for record in records) / len(records),
        "outcomes": dict(sorted(Counter(record.outcome for record in records).items())),
        "silent_groups": sum(_silent(rating) for rating in ratings),
        "silent_share": sum(_silent(rating) for rating in ratings) / max(1, len(ratings)),
        "branches": sum(len(episode.branches) for episode in episodes),
        "sampled_tokens": sum(len(episode.sampled) for episode in episodes),
        "primitives": primitives(records),
        "tool_calls": _tool_calls(records),
    } | asdict(footprint(episodes, page_size=PAGE_SIZE))


def _tool_calls(records: Sequence[RolloutRecord]) -> dict[str, int]:
    """Calls of tools by how they ended."""
    calls = [event for record in records for events in record.events for event in events if event.attempts]
    return dict(sorted(Counter("ok" if event.ok else "failed" for event in calls).items()))


def _packs(rated: Sequence[RatedEpisode], *, budget_tokens: int) -> list[Pack]:
    """At least one pack, so that a step without episodes is a step without effect."""
    filled = bins(rated, budget_tokens=budget_tokens) or [[]]
    return [part for one in filled for part in split(pack_rated(one), budget_tokens=budget_tokens)]


def own_packs(packs: Sequence[Pack], backbone: Backbone, ranks: Ranks) -> list[Pack]:
    """The packs that this rank passes over, of those that all ranks have made alike."""
    return deal(packs, Work.of(backbone), ranks=ranks.size)[ranks.rank]


def _silent(rating: Rating) -> bool:
    """Whether nothing of the group is paid anything."""
    return all(one.silent for one in rating.episodes)
