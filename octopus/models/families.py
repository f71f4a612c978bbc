"""The model families that Octopus runs exactly, and the settings it refuses rather than ignores."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from octopus.core.errors import UnsupportedModel
from octopus.core.storage.kv import KVShape
from octopus.models.rotary import check_rope
from octopus.models.state_shapes import StateShape, delta_state, granite_state, nemotron_state

FULL, SLIDING, RECURRENT = "full_attention", "sliding_attention", "linear_attention"
MLP, EXPERTS = "mlp", "moe"

Setting = tuple[str, tuple[object, ...], str]
"""A configuration's field, what it must be, and why."""


_SILU: Setting = ("hidden_act", ("silu",), "the short convolution ends in SiLU")
_ROUTER_LOSS: Setting = ("output_router_logits", (False, None), "the losses of routers are not part of any loss here")


@dataclass(frozen=True, kw_only=True)
class Family:
    """One family of the Hugging Face library.

    Attributes:
        name: As people call it.
        model_types: `config.model_type` of its configurations.
        model_class: The class with a language-modelling head whose modules are bound.
        kinds: Layers that it may have.
        partial_rotary: Whether its attention can rotate a part of a head.
        rotates: Whether attention of such a configuration has positions.
        state: Size of a recurrent layer's state.
        settings: Those that its recurrence, attention or head would ignore.
    """

    name: str
    model_types: tuple[str, ...]
    model_class: str
    kinds: tuple[str, ...]
    partial_rotary: bool = False
    rotates: Callable[[Any], bool] = lambda config: True
    state: StateShape | None = None
    settings: tuple[Setting, ...] = ()


FAMILIES = (
    Family(name="Llama", model_types=("llama",), model_class="LlamaForCausalLM", kinds=(FULL,)),
    Family(name="Qwen3", model_types=("qwen3",), model_class="Qwen3ForCausalLM", kinds=(FULL, SLIDING)),
    Family(
        name="Qwen3.5",
        model_types=("qwen3_5", "qwen3_5_text"),
        model_class="Qwen3_5ForCausalLM",
        kinds=(FULL, RECURRENT),
        partial_rotary=True,
        state=delta_state,
        settings=(_SILU,),
    ),
    Family(
        name="Qwen3-Next",
        model_types=("qwen3_next",),
        model_class="Qwen3NextForCausalLM",
        kinds=(FULL, RECURRENT),
        partial_rotary=True,
        state=delta_state,
        settings=(_SILU, _ROUTER_LOSS),
    ),
    Family(
        name="Granite 4",
        model_types=("granitemoehybrid",),
        model_class="GraniteMoeHybridForCausalLM",
        kinds=(FULL, RECURRENT),
        rotates=lambda config: config.position_embedding_type == "rope",
        state=granite_state,
        settings=(
            _SILU,
            _ROUTER_LOSS,
            ("position_embedding_type", (None, "nope", "rope"), "the library would leave positions out"),
        ),
    ),
    Family(
        name="Nemotron-H",
        model_types=("nemotron_h",),
        model_class="NemotronHForCausalLM",
        kinds=(FULL, RECURRENT, MLP, EXPERTS),
        rotates=lambda config: False,
        state=nemotron_state,
        settings=(
            ("mamba_hidden_act", ("silu",), "the short convolution ends in SiLU"),
            ("hidden_dropout", (0, None), "hidden states are never dropped"),
            ("residual_in_fp32", (False, None), "hidden states between layers keep the dtype of the weights"),
            _ROUTER_LOSS,
        ),
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
_SETTINGS: tuple[Setting, ...] = (
    ("attention_dropout", (0, None), "attention weights are never dropped"),
    ("attention_chunk_size", (None,), _CHUNKED),
    ("attn_logit_softcapping", (None,), "attention scores are not capped"),
    ("final_logit_softcapping", (None,), "logits are not capped"),
    ("is_causal", (True,), "a token never sees later ones"),
    ("use_bidirectional_attention", (False, None), "a token never sees later ones"),
)
_UNWINDOWED_SETTINGS: tuple[Setting, ...] = (
    ("sliding_window", (None,), "every attention layer sees its whole view"),
)


def family_of(config: Any) -> Family:
    """The family of a configuration.

    Raises:
        UnsupportedModel: its model type is not listed, or a setting of it is one that we would silently ignore.
    """
    family = _listed(config)
    if family is None:
        listed = "; ".join(f"{family.name} ({', '.join(family.model_types)})" for family in FAMILIES)
        why = f" ({_REASONS[config.model_type]})" if config.model_type in _REASONS else ""
        raise UnsupportedModel(
            f"model type {config.model_type!r} is not supported{why}; supported families: {listed}"
        )
    text = config.get_text_config()
    if family.rotates(text):
        check_rope(text, partial=family.partial_rotary)
    for name, allowed, why in _settings(family):
        value = getattr(text, name, allowed[0])
        if value not in allowed:
            raise UnsupportedModel(f"{name}={value!r} is not supported: {why}; expected {allowed[0]!r}")
    _check_layers(family, text)
    return family


def _settings(family: Family) -> tuple[Setting, ...]:
    return (*_SETTINGS, *family.settings, *(_UNWINDOWED_SETTINGS if SLIDING not in family.kinds else ()))


def _listed(config: Any) -> Family | None:
    return next((family for family in FAMILIES if config.model_type in family.model_types), None)


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
    kept = ["KV" if kind in (FULL, SLIDING) else kind for kind in layer_kinds(config)]
    return tuple(kept[:layer].count(here) for layer, here in enumerate(kept))


def kv_shape(config: Any) -> KVShape:
    """What a model of this configuration keeps for tokens and states; sliding layers keep as much as full ones."""
    kinds, family = layer_kinds(config), _listed(config)
    attention = {
        "attention_layers": kinds.count(FULL) + kinds.count(SLIDING),
        "kv_heads": config.num_key_value_heads,
        "head_dim": getattr(config, "head_dim", None) or config.hidden_size // config.num_attention_heads,
    }
    if RECURRENT not in kinds or family is None or family.state is None:
        return KVShape(**attention)
    return KVShape(**attention, recurrent_layers=kinds.count(RECURRENT), **family.state(config))
