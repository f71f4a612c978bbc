"""The configuration of a training run: one frozen tree, read from TOML and checked whole before anything starts.

Sections are the nested dataclasses, keys their fields. There is one spelling for everything, an unknown key is an
error, and nothing changes the configuration once the run has started.
"""

from __future__ import annotations

import tomllib
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Any, Literal

from octopus.core.errors import ConfigError
from octopus.rollout.script import Script
from octopus.train.schema import above, at_least, at_most, below, lines, parse

Count = Annotated[int, at_least(1)]
Index = Annotated[int, at_least(0)]
Positive = Annotated[float, above(0.0)]
NonNegative = Annotated[float, at_least(0.0)]
Share = Annotated[float, at_least(0.0), at_most(1.0)]
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
    seed: Index = 0
    """Seeds torch's generators when the run starts."""


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

    name: Literal["grpo", "likelihood"] = "grpo"
    """`likelihood` imitates: log-probabilities weighted by advantage, whoever sampled the tokens."""
    clip_low: Fraction = 0.2
    """Ratios below 1 - clip_low carry no gradient where the advantage is negative."""
    clip_high: Positive = 0.2
    """Ratios above 1 + clip_high carry no gradient where the advantage is positive."""
    divide_by_deviation: bool = False
    """Divides advantages by the group's deviation. Off by default: it blows small differences up to unit size."""


@dataclass(frozen=True, kw_only=True)
class StepConfig:
    """How a step is carried out."""

    backend: str | None = None
    """Attention backend, never replaced silently; if none is named, `default_backend` names it for the device."""
    logit_rows: Count = 512
    """Rows whose logits exist at one time: memory is this times the vocabulary."""
    max_grad_norm: Positive = 1.0
    """A longer gradient is scaled to this length."""


@dataclass(frozen=True, kw_only=True)
class OptimizerConfig:
    """AdamW."""

    learning_rate: Positive
    beta1: Fraction = 0.9
    beta2: Fraction = 0.999
    weight_decay: NonNegative = 0.0


@dataclass(frozen=True, kw_only=True)
class TrainConfig:
    """A whole run."""

    run: RunConfig
    model: ModelConfig
    task: Script
    optimizer: OptimizerConfig
    loss: LossConfig = field(default_factory=LossConfig)
    step: StepConfig = field(default_factory=StepConfig)


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
