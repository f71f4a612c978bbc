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
    AdapterConfig,
    Count,
    Index,
    LoggerName,
    LossConfig,
    NonNegative,
    OptimizerConfig,
    Positive,
    Seed,
    Share,
    StepConfig,
    digest_of,
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
    seed: Seed = 0
    """Of questions, scripts, rollouts and the generators of torch, numpy and Python."""
    save_every_steps: Count = 10
    """Steps that are evaluated, and the last one, are saved as well."""
    trace_events: Index = 20_000
    """Most events in trace.jsonl."""
    resume: bool = False
    """Goes on from the newest save in the folder; without it a folder that holds saves is refused."""
    stop_seconds: Positive = 60.0
    """Most seconds from SIGTERM or SIGINT to the end; the job saves in that time, or ends without."""
    loggers: tuple[LoggerName, ...] = ()
    """Where figures go besides metrics.jsonl, which is always written. Each is an extra of the package."""
    project: str = "octopus"
    """Of Weights & Biases and trackio; the run is named like its folder."""


@dataclass(frozen=True, kw_only=True)
class JobModelConfig:
    """The policy to begin with."""

    name: str = "shipped"
    """The folder of a policy or of a finished job; `shipped` is the one that comes with the package. With `chat` any
    folder or name that the Hugging Face libraries resolve."""
    dialect: Literal["codec", "chat"] = "codec"
    """How the policy acts: in the control tokens of its own codec, or in tool calls of the model's chat template."""
    gguf_file: str | None = None
    """With `chat`: file name of GGUF weights in that folder."""
    dtype: Literal["float32", "float64", "bfloat16"] = "float32"
    device: str = "cpu"


@dataclass(frozen=True, kw_only=True)
class TaskConfig:
    """What is asked."""

    kind: Literal["questions", "rows"] = "questions"
    """Questions about Python's standard library, of which the next three keys speak, or rows of your own."""
    parts: tuple[Parts, ...] = (1, 2, 3, 4)
    """How many parts questions have, in equal shares."""
    lost_searches: Share = 0.25
    """Share of searches that show nothing; see `DescribedObjects`."""
    train_questions: Count = 2_000
    """How many of the train split are drawn before they come round again."""
    file: str | None = None
    """JSONL with one row a line: a `prompt`, and columns for the reward functions."""
    held_out: str | None = None
    """Rows for evaluation; without such a file they are the last ones of `file`."""
    reward: tuple[str, ...] = ()
    """Reward functions of rows, as `module:function`."""
    reward_weights: tuple[float, ...] = ()
    """One a function; none weighs all the same, 1."""
    reward_seconds: Positive = 600.0
    """How long the functions may take for all rollouts of a step together."""
    corpus: str | None = None
    """JSONL with one document a line (`id`, `name`, `text`) that agents may search and open."""


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
    thread_tokens: Count = 256
    """Most tokens of an agent, all its turns together."""
    turns: Count = 12
    """Most turns of an agent."""
    backend: Literal["torch", "triton"] = "torch"
    """What computes attention over stored keys: `torch` everywhere, `triton` (our kernels) on a GPU."""


@dataclass(frozen=True, kw_only=True)
class ImitationConfig:
    """The warm-up: what a scripted policy does is imitated."""

    steps: Index = 0
    file: str | None = None
    """Episodes of your own to imitate, in the format of episodes.jsonl; without such a file a script plays."""
    episodes: Count = 32
    """Episodes a step."""
    patient: Share = 0.35
    """Share of them that search again where a search showed nothing; the others give the part up."""
    optimizer: OptimizerConfig = field(default_factory=lambda: OptimizerConfig(learning_rate=1e-3))


@dataclass(frozen=True, kw_only=True)
class CreditConfig:
    """What a branch's tokens are paid beside the episode's advantage."""

    method: Literal["coverage", "rescore", "regenerate", "none"] = "coverage"
    """What a branch added: evidence, likelihood of the right answer, or reward of the answer decoded again."""
    scope: Literal["closure", "recompute"] = "closure"
    """Whether what others wrote under its influence is hidden with it, or stays, computed again without it."""
    weight: NonNegative = 0.5
    """Weight of what it added by itself. 0 pays branches like the episode."""
    clip: Positive = 5.0
    """Largest size of what it added, in nats a token (`rescore`); differences of rewards are never above 1."""
    regenerate_share: Share = 0.0
    """Share of the episodes whose answers are also decoded again, to log how alike both order branches."""
    samples: Count = 1
    """Answers that are decoded for each branch that is left out."""


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
    optimizer: OptimizerConfig = field(default_factory=lambda: OptimizerConfig(learning_rate=1e-4))
    loss: LossConfig = field(default_factory=LossConfig)
    credit: CreditConfig = field(default_factory=CreditConfig)


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
    adapter: AdapterConfig | None = None


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
    credit = config.grpo.credit
    if config.rollout.mode == "text" and (credit.method in ("rescore", "regenerate") or credit.regenerate_share):
        raise ConfigError(
            f"{source}: grpo.credit: text that was handed over cannot be hidden from a thread; with rollout.mode = "
            f'"text" expected method "coverage" or "none" and regenerate_share 0, came method "{credit.method}" and '
            f"regenerate_share {credit.regenerate_share}"
        )
    _check_task(config, source=source)
    if config.grpo.loss.kl_weight and config.imitation.steps:
        raise ConfigError(
            f"{source}: grpo.loss.kl_weight: keeps to the policy that the job begins with, so it cannot follow "
            f"imitation.steps = {config.imitation.steps}; imitate in a job of its own and set model.name to its folder"
        )
    return config


def _check_task(config: JobConfig, *, source: str) -> None:
    """Raises ConfigError unless what rows and chats need is there, and nothing that they cannot do is asked."""
    task = config.task
    rows = {"file": task.file, "held_out": task.held_out, "reward": task.reward, "corpus": task.corpus}
    if task.kind == "rows":
        for key in ("file", "reward"):
            if not rows[key]:
                raise ConfigError(f"{source}: task.{key}: missing, which rows need")
    elif any(rows.values()):
        key = next(key for key, value in rows.items() if value)
        raise ConfigError(f'{source}: task.{key}: is for rows; set task.kind = "rows"')
    scripted = task.kind == "questions" and config.model.dialect == "codec"
    if config.imitation.steps and config.imitation.file is None and not scripted:
        raise ConfigError(
            f"{source}: imitation.file: missing: a script plays questions in the codec's tokens only; give episodes of "
            "your own, or set imitation.steps = 0"
        )


def job_digest(config: JobConfig) -> str:
    """The same for jobs that may be resumed as one another: all but where they stop and what they leave where."""
    run = JobRunConfig(folder="", seed=config.run.seed)
    return digest_of(replace(config, run=run, grpo=replace(config.grpo, steps=0)))
