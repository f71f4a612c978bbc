"""The configuration of a training run: one frozen tree, read from TOML and checked whole before anything starts.

Sections are the nested dataclasses, keys their fields. There is one spelling for everything, an unknown key is an
error, and nothing changes the configuration once the run has started.
"""

from __future__ import annotations

import hashlib
import tomllib
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Annotated, Any, Literal

from octopus.core.errors import ConfigError
from octopus.rollout.script import Script
from octopus.train.schema import above, at_least, at_most, below, lines, parse

Count = Annotated[int, at_least(1)]
Index = Annotated[int, at_least(0)]
Seed = Annotated[int, at_least(0), below(1 << 32)]
Positive = Annotated[float, above(0.0)]
NonNegative = Annotated[float, at_least(0.0)]
Share = Annotated[float, at_least(0.0), at_most(1.0)]
LoggerName = Literal["tensorboard", "wandb", "trackio"]
Fraction = Annotated[float, at_least(0.0), below(1.0)]


@dataclass(frozen=True, kw_only=True)
class RunConfig:
    """How long a run takes and where it leaves its files."""

    folder: str
    """Folder of the saves and of metrics.jsonl."""
    steps: Count
    """Number of optimiser steps in all, those before a resume included."""
    save_every_steps: Count = 10
    """The last step is saved as well."""
    resume: bool = False
    """Goes on from the newest save in the folder; without it a folder that holds saves is refused."""
    seed: Seed = 0
    """Seeds the generators of torch, numpy and Python when the run starts."""
    stop_seconds: Positive = 60.0
    """Most seconds from SIGTERM or SIGINT to the end; the run saves in that time, or ends without."""
    loggers: tuple[LoggerName, ...] = ()
    """Where figures go besides metrics.jsonl, which is always written. Each is an extra of the package."""
    project: str = "octopus"
    """Of Weights & Biases and trackio; the run is named like its folder."""


@dataclass(frozen=True, kw_only=True)
class ModelConfig:
    """The model to train."""

    name: str
    """A folder, or a name that the Hugging Face libraries resolve."""
    gguf_file: str | None = None
    """File name of GGUF weights in that folder."""
    dtype: Literal["float32", "float64", "bfloat16"] = "float32"
    device: str = "cpu"


@dataclass(frozen=True, kw_only=True)
class LossConfig:
    """What is minimised."""

    name: Literal["dapo", "grpo", "dr_grpo", "gspo", "cispo", "likelihood"] = "dapo"
    """The terms are told in `losses`, their denominators in `counts`. `likelihood` imitates: log-probabilities weighted
    by advantage, whoever sampled the tokens."""
    clip_low: Share = 0.2
    """Ratios below 1 - clip_low carry no gradient where the advantage is negative. gspo wants bounds near 3e-4."""
    clip_high: Positive = 0.2
    """Ratios above 1 + clip_high carry no gradient where the advantage is positive."""
    sequence_tokens: Count = 64
    """What dr_grpo divides a sequence's sum by, whatever its length; its authors take the longest that is allowed."""
    anchor: Literal["rollout", "trainer"] = "rollout"
    """What ratios are taken to: log-probabilities as recorded at the sampling, or those of the trainer's own pass
    before the first update. That costs a pass without gradients; terms are then weighted by the ratio of the two."""
    importance_cap: Positive = 2.0
    """Largest such weight of a term."""
    kl_weight: NonNegative = 0.0
    """Of the KL divergence from the policy that the run began with. It acts on every sampled token, also of groups
    whose rewards are all equal."""
    entropy_weight: NonNegative = 0.0
    """Of the mean entropy of what tokens are drawn from, which is raised. It acts on every sampled token."""
    divide_by_deviation: bool = False
    """Divides advantages by the group's deviation. Off by default: it blows small differences up to unit size."""

    @property
    def regularised(self) -> bool:
        """Whether tokens without advantage have a gradient, so that their episodes must be packed too."""
        return self.kl_weight > 0 or self.entropy_weight > 0


@dataclass(frozen=True, kw_only=True)
class StepConfig:
    """How a step is carried out."""

    backend: str | None = None
    """Attention backend, never replaced silently; if none is named, `default_backend` names it for the device."""
    logit_rows: Count = 512
    """Rows whose logits exist at one time: memory is this times the vocabulary."""
    max_grad_norm: Positive = 1.0
    """A longer gradient is scaled to this length."""
    recompute: bool = False
    """Keeps of each layer its input and what its attention gave, and makes the rest again in the backward pass."""


@dataclass(frozen=True, kw_only=True)
class OptimizerConfig:
    """AdamW."""

    learning_rate: Positive
    """The highest."""
    schedule: Literal["constant", "linear", "cosine"] = "constant"
    """How it falls after the warm-up, over the steps of the stage."""
    warmup_steps: Index = 0
    """Steps over which it rises linearly from 0; the first step already has the first part of the rise."""
    final_share: Share = 0.0
    """What is left of the learning rate after the last step, unless it is constant."""
    beta1: Fraction = 0.9
    beta2: Fraction = 0.999
    epsilon: Positive = 1e-8
    weight_decay: NonNegative = 0.0
    """Of matrices; norms, biases and other vectors never decay."""
    decay_embeddings: bool = True
    """Whether embeddings, and heads tied to them, decay."""
    moments: Literal["full", "8bit"] = "full"
    """How moments of gradients are kept: in the dtype of the weights, or in 8 bits with a scale for each 256 (arXiv
    2110.02861); bfloat16 weights are then rounded at random, so that small updates count. Extra: octopus-kv[8bit]."""


@dataclass(frozen=True, kw_only=True)
class AdapterConfig:
    """Low-rank adapters (LoRA, arXiv 2106.09685): only they are trained, the model's own weights stay."""

    rank: Count = 16
    alpha: Count = 32
    """What an adapter adds is multiplied by alpha / rank."""
    targets: tuple[str, ...] = ()
    """Last parts of the names of the linear layers that get one; if none is named, all but the head."""


@dataclass(frozen=True, kw_only=True)
class TrainConfig:
    """A whole run."""

    run: RunConfig
    model: ModelConfig
    task: Script
    optimizer: OptimizerConfig
    loss: LossConfig = field(default_factory=LossConfig)
    step: StepConfig = field(default_factory=StepConfig)
    adapter: AdapterConfig | None = None


def load_config(path: Path, *, overrides: Sequence[str] = ()) -> TrainConfig:
    """Reads and checks the configuration of a run on scripted episodes. See `read_table`."""
    table, source = read_table(path, overrides=overrides)
    return parse_config(table, source=source)


def parse_config(table: dict[str, Any], *, source: str) -> TrainConfig:
    """Checks a table that `read_table` gave."""
    config = parse(TrainConfig, table, source=source)
    _check_script(config.task, source=source)
    return config


def read_table(path: Path, *, overrides: Sequence[str] = ()) -> tuple[dict[str, Any], str]:
    """Reads a configuration file.

    Args:
        path: A TOML file.
        overrides: `section.key=value`, applied in order before the check. The value is TOML; what is not TOML is taken
            as a string, so that `model.name=some/folder` needs no quotes.

    Returns:
        The table, not checked yet, and what to call it in messages.

    Raises:
        ConfigError: The file cannot be read, a key is unknown or missing, or a value is of the wrong type or out of
            range. The message names the place.
    """
    try:
        table = tomllib.loads(path.read_text())
    except OSError as error:
        raise ConfigError(f"{path}: cannot be read: {error.strerror}") from error
    except tomllib.TOMLDecodeError as error:
        raise ConfigError(f"{path}: not valid TOML: {error}") from error
    for override in overrides:
        _apply(override, table)
    return table, f"{path} with --set" if overrides else str(path)


def describe(config: object) -> str:
    """Lists every key with its value, defaults included, one a line."""
    return "\n".join(lines(config))


def digest_of(config: object) -> str:
    """A hash of every key and value of a configuration tree."""
    return hashlib.sha256(describe(config).encode()).hexdigest()


def run_digest(config: TrainConfig) -> str:
    """The same for runs that may be resumed as one another: all but where they stop and what they leave where."""
    run = RunConfig(folder="", steps=1, seed=config.run.seed)
    return digest_of(replace(config, run=run))


def _apply(override: str, table: dict[str, Any]) -> None:
    """Sets one `section.key=value` in the parsed table. Whether the key exists is left to the check of the whole."""
    place, equals, text = override.partition("=")
    keys = place.strip().split(".")
    if not equals or not all(keys):
        raise ConfigError(f"--set {override}: expected section.key=value")
    for key in keys[:-1]:
        table = table.setdefault(key, {})
        if not isinstance(table, dict):
            raise ConfigError(f"--set {override}: {key} is not a section")
    table[keys[-1]] = _value(text.strip())


def _value(text: str) -> Any:
    try:
        return tomllib.loads(f"value = {text}")["value"]
    except tomllib.TOMLDecodeError:
        return text


def _check_script(script: Script, *, source: str) -> None:
    """Checks what types cannot say: every rollout has one note for each document."""
    for number, rollout in enumerate(script.rollouts):
        if len(rollout.notes) != len(script.documents):
            raise ConfigError(
                f"{source}: task.rollouts[{number}].notes: expected {len(script.documents)} notes, one for each of "
                f"task.documents, came {len(rollout.notes)}"
            )
