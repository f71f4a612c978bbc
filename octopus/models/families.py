"""The model families that Octopus runs exactly, and the settings it refuses rather than ignores."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from octopus.core.errors import UnsupportedModel
from octopus.core.storage.kv import KVShape
from octopus.models.rotary import check_rope

FULL, SLIDING, RECURRENT = "full_attention", "sliding_attention", "linear_attention"


@dataclass(frozen=True, kw_only=True)
class Family:
    """One family of the Hugging Face library.

    Attributes:
        name: As people call it.
        model_types: `config.model_type` of its configurations.
        model_class: The class with a language-modelling head whose modules are bound.
        kinds: Layers that it may have.
        partial_rotary: Whether its attention can rotate a part of a head.
    """

    name: str
    model_types: tuple[str, ...]
    model_class: str
    kinds: tuple[str, ...]
    partial_rotary: bool = False


FAMILIES = (
    Family(name="Llama", model_types=("llama",), model_class="LlamaForCausalLM", kinds=(FULL,)),
    Family(name="Qwen3", model_types=("qwen3",), model_class="Qwen3ForCausalLM", kinds=(FULL, SLIDING)),
    Family(
        name="Qwen3.5",
        model_types=("qwen3_5", "qwen3_5_text"),
        model_class="Qwen3_5ForCausalLM",
        kinds=(FULL, RECURRENT),
        partial_rotary=True,
    ),
    Family(name="Gemma-3", model_types=("gemma3_text",), model_class="Gemma3ForCausalLM", kinds=(FULL, SLIDING)),
)

# Why some families cannot be run at all.
_ALIBI = "its positions are a bias on scores (ALiBi), not a rotation"
_LEARNED = "its positions are learned and added to the tokens, so a mounted token cannot be seen anywhere else"
_CHUNKED = "its attention is cut into chunks by position, so what a mount shows would hang on where a chunk ends"
_MIXED = "some of its layers have no rotation (NoPE) among others that have one"
_REASONS: Mapping[str, str] = {
    "bloom": _ALIBI,
    "mpt": _ALIBI,
    "gpt2": _LEARNED,
    "gpt_neo": _LEARNED,
    "opt": _LEARNED,
    "llama4": _CHUNKED,
    "llama4_text": _CHUNKED,
    "cohere2": _MIXED,
    "smollm3": _MIXED,
    "gemma3": "its images are seen from both sides; load its text model as Gemma3ForCausalLM with config.text_config",
}

# Settings that our attention, recurrence or head would ignore: what they must be, and why.
_SETTINGS: tuple[tuple[str, tuple[object, ...], str], ...] = (
    ("attention_dropout", (0, None), "attention weights are never dropped"),
    ("attention_chunk_size", (None,), _CHUNKED),
    ("attn_logit_softcapping", (None,), "attention scores are not capped"),
    ("final_logit_softcapping", (None,), "logits are not capped"),
    ("is_causal", (True,), "a token never sees later ones"),
    ("use_bidirectional_attention", (False, None), "a token never sees later ones"),
)
_RECURRENT_SETTINGS: tuple[tuple[str, tuple[object, ...], str], ...] = (
    ("hidden_act", ("silu",), "the short convolution ends in SiLU"),
)
_UNWINDOWED_SETTINGS: tuple[tuple[str, tuple[object, ...], str], ...] = (
    ("sliding_window", (None,), "every attention layer sees its whole view"),
)


def family_of(config: Any) -> Family:
    """The family of a configuration.

    Raises:
        UnsupportedModel: its model type is not listed, or a setting of it is one that we would silently ignore.
    """
    family = next((family for family in FAMILIES if config.model_type in family.model_types), None)
    if family is None:
        listed = "; ".join(f"{family.name} ({', '.join(family.model_types)})" for family in FAMILIES)
        why = f" ({_REASONS[config.model_type]})" if config.model_type in _REASONS else ""
        raise UnsupportedModel(
            f"model type {config.model_type!r} is not supported{why}; supported families: {listed}"
        )
    text = config.get_text_config()
    check_rope(text, partial=family.partial_rotary)
    for name, allowed, why in _settings(family):
        value = getattr(text, name, allowed[0])
        if value not in allowed:
            raise UnsupportedModel(f"{name}={value!r} is not supported: {why}; expected {allowed[0]!r}")
    _check_layers(family, text)
    return family


def _settings(family: Family) -> tuple[tuple[str, tuple[object, ...], str], ...]:
    return (
        *_SETTINGS,
        *(_RECURRENT_SETTINGS if RECURRENT in family.kinds else ()),
        *(_UNWINDOWED_SETTINGS if SLIDING not in family.kinds else ()),
    )


def _check_layers(family: Family, config: Any) -> None:
    kinds = set(layer_kinds(config))
    if strange := sorted(kinds - set(family.kinds)):
        raise UnsupportedModel(
            f"layer_types contain {', '.join(strange)}; {family.name} is run with "
            f"{', '.join(sorted(family.kinds))} only"
        )
    window = getattr(config, "sliding_window", None)
    if SLIDING in kinds and (window is None or window < 1):
        raise UnsupportedModel(f"sliding_window={window!r} with sliding layers; expected 1 position or more")


def layer_kinds(config: Any) -> tuple[str, ...]:
    """The kind of each layer, in order."""
    return tuple(getattr(config, "layer_types", None) or [FULL] * config.num_hidden_layers)


def storage_ranks(config: Any) -> tuple[int, ...]:
    """For each layer its place in the store: how many layers before it keep the same, tokens' KV or states."""
    recurrent = [kind == RECURRENT for kind in layer_kinds(config)]
    return tuple(recurrent[:layer].count(here) for layer, here in enumerate(recurrent))


def kv_shape(config: Any) -> KVShape:
    """What a model of this configuration keeps for tokens and states; sliding layers keep as much as full ones."""
    kinds = layer_kinds(config)
    attention = {
        "attention_layers": len(kinds) - kinds.count(RECURRENT),
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
