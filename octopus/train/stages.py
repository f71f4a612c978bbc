"""The two ways in which a job learns, one step at a time: from a script, and from its own rollouts."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from random import Random
from typing import Any, Protocol

import torch

from octopus.models.backbone import Backbone
from octopus.rollout.codec import Codec
from octopus.rollout.loop import Rollouts
from octopus.rollout.records import RolloutRecord
from octopus.rollout.scripted import play_script
from octopus.train.config import LossConfig, OptimizerConfig
from octopus.train.footprint import footprint, primitives
from octopus.train.job_config import PAGE_SIZE, JobConfig
from octopus.train.packing import Pack, RatedEpisode, bins, evenly, pack_rated
from octopus.train.rating import Rating, rate
from octopus.train.step import train_step
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
    """Every token that a scripted policy samples is made likelier: the loss is the mean negative log-likelihood."""

    name = "imitation"

    def __init__(self, config: JobConfig, *, backbone: Backbone, codec: Codec, tasks: Tasks) -> None:
        self.optimizer = config.imitation.optimizer
        self._patient = config.imitation.patient
        self._config = config
        self._backbone = backbone
        self._codec = codec
        self._tasks = tasks

    def step(self, number: int, optimizer: torch.optim.Optimizer) -> StageStep:
        """See `Stage`."""
        mode = self._config.rollout.mode
        records = tuple(
            play_script(name, environment, self._codec, mode, patient=Random(name).random() < self._patient)
            for environment in self._tasks.scripted(number)
            for name in [f"imitation-{number}/{environment.question.id}"]
        )
        packs = imitation_packs(records, budget_tokens=self._config.packing.budget_tokens)
        result = train_step(
            self._backbone, packs, optimizer, loss=LossConfig(name="likelihood"), step=self._config.step
        )
        return StageStep(figures=asdict(result), records=records)


class Reinforcement:
    """Groups of rollouts are compared, and what did better is made likelier."""

    name = "grpo"

    def __init__(self, config: JobConfig, *, backbone: Backbone, rollouts: Rollouts, tasks: Tasks) -> None:
        self.optimizer = config.grpo.optimizer
        self._config = config
        self._backbone = backbone
        self._rollouts = rollouts
        self._tasks = tasks

    def step(self, number: int, optimizer: torch.optim.Optimizer) -> StageStep:
        """See `Stage`."""
        started = time.perf_counter()
        tasks, grpo = self._tasks.training(number), self._config.grpo
        groups = self._rollouts.run(tasks)
        rollout_seconds = time.perf_counter() - started
        ratings = [
            rate(
                task.environment,
                group,
                branch_weight=grpo.branch_weight,
                divide_by_deviation=grpo.loss.divide_by_deviation,
            )
            for task, group in zip(tasks, groups, strict=True)
        ]
        rated = [one for rating in ratings for one in rating.episodes]
        packs = _packs(
            [one for one in rated if not one.silent], budget_tokens=self._config.packing.budget_tokens
        )
        silent_terms = sum(one.loss_terms for one in rated if one.silent)
        results = [
            train_step(
                self._backbone,
                packs,
                optimizer,
                loss=grpo.loss,
                step=self._config.step,
                silent_terms=silent_terms,
            )
            for _ in range(grpo.updates)
        ]
        # The first update's figures: its log-ratios are the mismatch between rollout and trainer.
        result = replace(
            results[0],
            updated=all(result.updated for result in results),
            packed_tokens=sum(result.packed_tokens for result in results),
            step_seconds=sum(result.step_seconds for result in results),
        )
        records = tuple(record for group in groups for record in group)
        figures = rollout_figures(records, ratings) | {"rollout_seconds": rollout_seconds} | asdict(result)
        return StageStep(figures=figures, records=records)


def new_optimizer(model: torch.nn.Module, config: OptimizerConfig) -> torch.optim.Optimizer:
    """AdamW over all weights of a model."""
    return torch.optim.AdamW(
        model.parameters(),
        lr=config.learning_rate,
        betas=(config.beta1, config.beta2),
        weight_decay=config.weight_decay,
    )


def imitation_packs(records: Sequence[RolloutRecord], *, budget_tokens: int) -> list[Pack]:
    """Packs scripted episodes for the loss `likelihood`: every sampled token has advantage 1."""
    return _packs([evenly(record.episode, 1.0) for record in records], budget_tokens=budget_tokens)


def rollout_figures(records: Sequence[RolloutRecord], ratings: Sequence[Rating]) -> dict[str, Any]:
    """What there is to say about the rollouts of one step, their wall time left aside."""
    episodes = [record.episode for record in records]
    terms = [term for rating in ratings for episode_terms in rating.terms for term in episode_terms]
    defined = [term for term in terms if term is not None]
    return {
        "reward": sum(episode.reward for episode in episodes) / len(episodes),
        "exact_match": sum(record.correct for record in records) / len(records),
        "outcomes": dict(sorted(Counter(record.outcome for record in records).items())),
        "silent_groups": sum(_silent(rating) for rating in ratings),
        "branches": len(terms),
        "branch_terms_undefined": len(terms) - len(defined),
        "branch_term": sum(defined) / len(defined) if defined else None,
        "sampled_tokens": sum(len(episode.sampled) for episode in episodes),
        "primitives": primitives(records),
    } | asdict(footprint(episodes, page_size=PAGE_SIZE))


def _packs(rated: Sequence[RatedEpisode], *, budget_tokens: int) -> list[Pack]:
    """At least one pack, so that a step without episodes is a step without effect."""
    return [pack_rated(filled) for filled in bins(rated, budget_tokens=budget_tokens) or [[]]]


def _silent(rating: Rating) -> bool:
    """Whether nothing of the group is paid anything."""
    return all(one.silent for one in rating.episodes)
