"""The model families that Octopus runs exactly, and the settings it refuses rather than ignores."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from octopus.core.errors import UnsupportedModel
from octopus.core.storage import KVShape

ATTENTION, RECURRENT = "full_attention", "linear_attention"


@dataclass(frozen=True, kw_only=True)
class Family:
    """One family of the Hugging Face library.

    Attributes:
        name: As people call it.
        model_types: `config.model_type` of its configurations.
        model_class: The class with a language-modelling head whose modules are bound.
        recurrent: Whether some layers are gated delta nets.
    """

    name: str
    model_types: tuple[str, ...]
    model_class: str
    recurrent: bool


FAMILIES = (
    Family(name="Llama", model_types=("llama",), model_class="LlamaForCausalLM", recurrent=False),
    Family(
        name="Qwen3.5",
        model_types=("qwen3_5", "qwen3_5_text"),
        model_class="Qwen3_5ForCausalLM",
        recurrent=True,
    ),
)

# Why a rotary embedding other than `default` is refused.
_ROPE_REASONS: Mapping[str, str] = {
    "dynamic": "its frequencies depend on the longest position of a call, so a stored key cannot be seen shifted",
    "longrope": "it switches frequencies with the length of a call, so a stored key cannot be seen shifted",
    "yarn": "its attention factor and blended frequencies are not implemented",
    "linear": "its scaled frequencies are not implemented",
    "llama3": "its scaled frequencies are not implemented",
}

# Settings that our attention or recurrence would ignore: what they must be, and why.
_SETTINGS: tuple[tuple[str, tuple[object, ...], str], ...] = (
    ("attention_dropout", (0, None), "attention weights are never dropped"),
    ("sliding_window", (None,), "every attention layer sees its whole view"),
    ("attention_chunk_size", (None,), "every attention layer sees its whole view"),
    ("attn_logit_softcapping", (None,), "attention scores are not capped"),
    ("is_causal", (True,), "a token never sees later ones"),
)
_RECURRENT_SETTINGS: tuple[tuple[str, tuple[object, ...], str], ...] = (
    ("hidden_act", ("silu",), "the short convolution ends in SiLU"),
)


def family_of(config: Any) -> Family:
    """The family of a configuration.

    Raises:
        UnsupportedModel: its model type is not listed, or a setting of it is one that we would silently ignore.
    """
    family = next((family for family in FAMILIES if config.model_type in family.model_types), None)
    if family is None:
        listed = "; ".join(f"{family.name} ({', '.join(family.model_types)})" for family in FAMILIES)
        raise UnsupportedModel(
            f"model type {config.model_type!r} is not supported; supported families: {listed}"
        )
    text = config.get_text_config()
    _check_rope(text)
    for name, allowed, why in _SETTINGS + (_RECURRENT_SETTINGS if family.recurrent else ()):
        value = getattr(text, name, allowed[0])
        if value not in allowed:
            raise UnsupportedModel(f"{name}={value!r} is not supported: {why}; expected {allowed[0]!r}")
    kinds = {ATTENTION, RECURRENT} if family.recurrent else {ATTENTION}
    strange = sorted(set(layer_kinds(text)) - kinds)
    if strange:
        raise UnsupportedModel(
            f"layer_types contain {', '.join(strange)}; {family.name} is run with {', '.join(sorted(kinds))} only"
        )
    return family


def _check_rope(config: Any) -> None:
    parameters = config.rope_parameters
    kind = parameters.get("rope_type")
    if kind == "default":
        return
    if kind is None:
        raise UnsupportedModel(
            f"rope parameters by layer type are not supported, only one default set: {parameters}"
        )
    why = _ROPE_REASONS.get(kind, "it is not implemented")
    raise UnsupportedModel(
        f"rope type {kind!r} is not supported: {why}; supported: default (full or partial)"
    )


def layer_kinds(config: Any) -> tuple[str, ...]:
    """The kind of each layer, in order."""
    return tuple(getattr(config, "layer_types", None) or [ATTENTION] * config.num_hidden_layers)


def storage_ranks(config: Any) -> tuple[int, ...]:
    """For each layer, how many layers of its own kind come before it: its place in the store."""
    kinds = layer_kinds(config)
    return tuple(kinds[:layer].count(kind) for layer, kind in enumerate(kinds))


def kv_shape(config: Any) -> KVShape:
    """What a model of this configuration keeps for tokens and states."""
    kinds = layer_kinds(config)
    attention = {
        "attention_layers": kinds.count(ATTENTION),
        "kv_heads": config.num_key_value_heads,
        "head_dim": config.head_dim,
    }
    if RECURRENT not in kinds:
        return KVShape(**attention)
    keys = config.linear_num_key_heads * config.linear_key_head_dim
    values = config.linear_num_value_heads * config.linear_value_head_dim
    return KVShape(
        **attention,
        recurrent_layers=kinds.count(RECURRENT),
        conv_columns=config.linear_conv_kernel_dim - 1,
        conv_channels=2 * keys + values,
        value_heads=config.linear_num_value_heads,
        key_dim=config.linear_key_head_dim,
        value_dim=config.linear_value_head_dim,
    )
