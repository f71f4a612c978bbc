"""A Hugging Face `config.json`: named fields are copied, nothing is instantiated and no code is chosen by it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from octopus.verify.facets import Heads, Rotary
from octopus.verify.inputs import Unreadable

DEFAULT_THETA = 10_000.0
LARGEST = 2**31
SCALING = (
    "rope_type", "type", "factor", "original_max_position_embeddings", "attention_factor", "beta_fast", "beta_slow",
    "low_freq_factor", "high_freq_factor", "short_factor", "long_factor", "mrope_section", "mrope_interleaved",
    "truncate", "mscale", "mscale_all_dim",
)  # fmt: skip


@dataclass(frozen=True, kw_only=True, slots=True)
class HfConfig:
    """What is taken of a configuration; everything else in the file is left alone."""

    num_attention_heads: int
    num_key_value_heads: int
    head_dim: int
    hidden_size: int | None
    max_position_embeddings: int | None
    sliding_window: int | None
    rope_theta: float
    partial_rotary_factor: float
    scaling: Mapping[str, object]

    @property
    def rotary_dim(self) -> int:
        """Dims of a head that are rotated."""
        return int(self.head_dim * self.partial_rotary_factor)


def parse_config(table: Any) -> tuple[HfConfig, tuple[str, ...]]:
    """The configuration (of the text model, where there are several) and what was assumed.

    Raises:
        Unreadable: a field has a value of another kind, or one that must be there is missing.
    """
    if isinstance(table, dict) and isinstance(table.get("text_config"), dict):
        table = table["text_config"]
    if not isinstance(table, dict):
        raise Unreadable("the configuration is not a table")
    heads = _integer(table, "num_attention_heads")
    hidden = _integer(table, "hidden_size")
    if heads is None:
        raise Unreadable("the configuration does not say num_attention_heads")
    notes = []
    head_dim = _integer(table, "head_dim")
    if head_dim is None:
        if hidden is None or not heads:
            raise Unreadable("the configuration says neither head_dim nor hidden_size and num_attention_heads")
        head_dim = hidden // heads
        notes.append(f"head_dim {head_dim} was derived from hidden_size")
    key_value = _integer(table, "num_key_value_heads")
    if key_value is None:
        notes.append("num_key_value_heads is missing: as many as query heads were assumed")
    rope = table.get("rope_parameters") or table.get("rope_scaling") or {}
    if not isinstance(rope, dict):
        raise Unreadable("rope_parameters is not a table")
    if "full_attention" in rope:
        rope = rope["full_attention"] if isinstance(rope["full_attention"], dict) else {}
        notes.append("rope_parameters differ by kind of layer: those of full attention were taken")
    factor = _number(rope, "partial_rotary_factor") or _number(table, "partial_rotary_factor")
    window = _integer(table, "sliding_window") if table.get("use_sliding_window", True) else None
    return HfConfig(
        num_attention_heads=heads,
        num_key_value_heads=heads if key_value is None else key_value,
        head_dim=head_dim,
        hidden_size=hidden,
        max_position_embeddings=_integer(table, "max_position_embeddings"),
        sliding_window=window,
        rope_theta=_number(rope, "rope_theta") or _number(table, "rope_theta") or DEFAULT_THETA,
        partial_rotary_factor=1.0 if factor is None else factor,
        scaling={name: rope[name] for name in SCALING if name in rope},
    ), tuple(notes)


def heads_of(config: HfConfig) -> Heads:
    """The same as an audit takes it."""
    return Heads(
        query=config.num_attention_heads,
        key_value=config.num_key_value_heads,
        dim=config.head_dim,
        hidden=config.hidden_size,
        max_positions=config.max_position_embeddings,
        window=config.sliding_window,
        rotary=Rotary(dim=config.rotary_dim, theta=config.rope_theta, scaling=dict(config.scaling) or None),
    )


def _integer(table: Mapping[str, Any], name: str) -> int | None:
    value = table.get(name)
    if value is None:
        return None
    if not isinstance(value, int) or isinstance(value, bool) or not 0 <= value <= LARGEST:
        raise Unreadable(f"{name} should be a number from 0 to {LARGEST:,}")
    return value


def _number(table: Mapping[str, Any], name: str) -> float | None:
    value = table.get(name)
    if value is None:
        return None
    if not isinstance(value, int | float) or isinstance(value, bool) or not 0 < value < 1e300:
        raise Unreadable(f"{name} should be a positive number")
    return float(value)
