"""The recipe of a warm-up: the model's shape, the data, and how long."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from octopus.train.config import Count, Fraction, Index, NonNegative, Positive, Share, read_table
from octopus.train.schema import parse


@dataclass(frozen=True, kw_only=True)
class ShapeConfig:
    """A Qwen3.5-shaped hybrid."""

    hidden: Count
    mlp: Count
    layers: Count
    attention_every: Count
    """Every so many layers the last is full attention, the others are Gated DeltaNet."""
    heads: Count
    kv_heads: Count
    head_dim: Count
    recurrent_key_heads: Count
    recurrent_value_heads: Count
    recurrent_key_dim: Count
    recurrent_value_dim: Count
    rotary_share: Share = 0.5
    rope_theta: Positive = 10_000.0


@dataclass(frozen=True, kw_only=True)
class DataConfig:
    """What is imitated. A step's episodes are a pure function of the seed and the step's number."""

    episodes: Count
    """Scripted episodes a step."""
    documents: Count = 256
    """Documents of the corpus that is drawn afresh for every step."""
    windows: Share = 0.7
    """Share of steps whose documents are random stretches of text, the others have whole texts."""
    parts: tuple[Count, ...] = (1, 1, 2, 3, 4)
    """How many parts questions have, in turn."""
    lost_searches: Share = 0.0
    """Share of searches that show nothing."""
    patient: Share = 1.0
    """Share of episodes that then search again; the others give the part up. Imitation copies the mixture."""
    single: Share = 0.1
    """Share of episodes that are played in mode `single`."""
    text: Share = 0.1
    """Share that are played in mode `text`; the rest is `octopus`."""


@dataclass(frozen=True, kw_only=True)
class ScheduleConfig:
    """How it is trained, and the rule by which it stops."""

    steps: Count
    """The learning rate falls over so many steps, and there are no more."""
    stop_share: Share = 1.0
    """It stops at the first check at which every kind of held-out turn is wholly right in more than this share."""
    learning_rate: Positive
    """The highest; rises linearly over `rise_steps` and falls as a cosine to a hundredth."""
    rise_steps: Count
    beta2: Fraction = 0.98
    weight_decay: NonNegative = 0.05
    max_grad_norm: Positive = 1.0
    check_every_steps: Count = 200
    """Steps between checks on validation documents, each of which also saves."""


@dataclass(frozen=True, kw_only=True)
class WarmupConfig:
    """A whole warm-up."""

    seed: Index
    shape: ShapeConfig
    data: DataConfig
    schedule: ScheduleConfig


def load_recipe(path: Path, *, overrides: tuple[str, ...] = ()) -> WarmupConfig:
    """Reads and checks a recipe. Raises ConfigError naming the place."""
    table, source = read_table(path, overrides=overrides)
    return parse(WarmupConfig, table, source=source)
