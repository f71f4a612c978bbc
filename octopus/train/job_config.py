"""The configuration of a job: imitation, then reinforcement with real rollouts, evaluated on the way.

A file is a job's when it says `kind = "job"` at its top. The rules are those of `config`.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Annotated, Any, Literal

from octopus.core.errors import ConfigError
from octopus.train.config import (
    Count,
    Index,
    LossConfig,
    NonNegative,
    OptimizerConfig,
    Positive,
    Share,
    StepConfig,
    read_table,
)
from octopus.train.schema import at_least, at_most, parse

Parts = Annotated[int, at_least(1), at_most(4)]
PAGE_SIZE = 16
"""Tokens of a KV page."""
Mode = Literal["octopus", "text", "single"]


@dataclass(frozen=True, kw_only=True)
class JobRunConfig:
    """Where a run leaves its files, and what it starts from."""

    folder: str
    """The run folder."""
    seed: Index = 0
    """Of questions, scripts, rollouts and torch's generators."""
    save_every_steps: Count = 10
    """Steps that are evaluated, and the last one, are saved as well."""
    trace_events: Index = 20_000
    """Most events in trace.jsonl."""
    resume: bool = False
    """Goes on from the newest save in the folder; without it a folder that holds saves is refused."""


@dataclass(frozen=True, kw_only=True)
class JobModelConfig:
    """The policy to begin with."""

    name: str = "shipped"
    """The folder of a policy or of a finished job; `shipped` is the one that comes with the package."""
    dtype: Literal["float32", "float64", "bfloat16"] = "float32"
    device: str = "cpu"


@dataclass(frozen=True, kw_only=True)
class TaskConfig:
    """The questions."""

    parts: tuple[Parts, ...] = (1, 2, 3, 4)
    """How many parts questions have, in equal shares."""
    lost_searches: Share = 0.25
    """Share of searches that show nothing; see `DescribedObjects`."""
    train_questions: Count = 2_000
    """How many of the train split are drawn before they come round again."""


@dataclass(frozen=True, kw_only=True)
class RolloutConfig:
    """How episodes are rolled out."""

    mode: Mode = "octopus"
    """Whether agents share KV, exchange text, or are one."""
    temperature: Positive = 1.0
    """Of training rollouts; evaluation is greedy."""
    pages: Count = 4_096
    """KV pages, of PAGE_SIZE tokens."""
    state_slots: Count = 1_024
    """Recurrent states."""
    batch_tokens: Count = 2_048
    """Most tokens of one forward pass."""
    episodes: Count = 64
    """Most episodes that are played at the same time."""
    turn_tokens: Count = 64
    """Most tokens of an agent's turn."""
    turns: Count = 12
    """Most turns of an agent."""


@dataclass(frozen=True, kw_only=True)
class ImitationConfig:
    """The warm-up: what a scripted policy does is imitated."""

    steps: Index = 0
    episodes: Count = 32
    """Scripted episodes a step."""
    patient: Share = 0.35
    """Share of them that search again where a search showed nothing; the others give the part up."""
    optimizer: OptimizerConfig = field(default_factory=lambda: OptimizerConfig(learning_rate=1e-3))


@dataclass(frozen=True, kw_only=True)
class GrpoConfig:
    """Reinforcement."""

    steps: Index
    questions: Count = 8
    """Questions a step."""
    rollouts: Count = 8
    """Episodes a question: the group whose rewards are compared."""
    updates: Count = 1
    """Optimiser steps on the same episodes."""
    branch_weight: NonNegative = 0.5
    """Weight of what a branch added by itself, beside the episode's advantage. 0 pays branches like the episode."""
    optimizer: OptimizerConfig = field(default_factory=lambda: OptimizerConfig(learning_rate=1e-4))
    loss: LossConfig = field(default_factory=LossConfig)


@dataclass(frozen=True, kw_only=True)
class PackingConfig:
    """How episodes are laid out as rows."""

    budget_tokens: Count = 8_192
    """Most unique tokens of a row; memory grows with it, gradients do not depend on it."""


@dataclass(frozen=True, kw_only=True)
class EvaluationConfig:
    """Greedy exact match. Validation chooses the best save; test questions are seen before and after only."""

    every_steps: Count = 10
    """Steps between evaluations on validation questions."""
    validation_questions: Count = 100
    test_questions: Count = 200
    seed: Index = 0
    """Of both: runs with other seeds are compared on the same questions."""


@dataclass(frozen=True, kw_only=True)
class JobConfig:
    """A whole job."""

    kind: Literal["job"]
    run: JobRunConfig
    grpo: GrpoConfig
    model: JobModelConfig = field(default_factory=JobModelConfig)
    task: TaskConfig = field(default_factory=TaskConfig)
    rollout: RolloutConfig = field(default_factory=RolloutConfig)
    imitation: ImitationConfig = field(default_factory=ImitationConfig)
    evaluation: EvaluationConfig = field(default_factory=EvaluationConfig)
    packing: PackingConfig = field(default_factory=PackingConfig)
    step: StepConfig = field(default_factory=StepConfig)


def is_job(table: dict[str, Any]) -> bool:
    """Whether a table that `read_table` gave describes a job."""
    return "kind" in table


def load_job(path: Path, *, overrides: Sequence[str] = ()) -> JobConfig:
    """Reads and checks the configuration of a job. See `read_table`."""
    table, source = read_table(path, overrides=overrides)
    return parse_job(table, source=source)


def parse_job(table: dict[str, Any], *, source: str) -> JobConfig:
    """Checks a table that `read_table` gave."""
    config = parse(JobConfig, table, source=source)
    if not config.task.parts:
        raise ConfigError(f"{source}: task.parts: expected at least one number of parts, came an empty list")
    return config


def same_run(one: JobConfig, other: JobConfig) -> bool:
    """Whether a run of `one` may be resumed as `other`: all but where it stops, and that it resumes, is the same."""
    return _bare(one) == _bare(other)


def _bare(config: JobConfig) -> JobConfig:
    return replace(
        config,
        run=replace(config.run, folder="", resume=False, save_every_steps=1),
        grpo=replace(config.grpo, steps=0),
    )
