"""How a model's attention layers place queries and keys: the library's own frequencies, as pure rotations.

Letters: R half of the rotary dimensions, H query heads, T rows, D head dimension.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor
from transformers import PreTrainedModel

from octopus.attention.rope import Rope
from octopus.core.errors import UnsupportedModel

ROPE_TYPES = ("default", "linear", "llama3", "yarn")
"""Those whose frequencies are fixed at load."""

# Why another rotary embedding is refused, and what to do about it.
_REASONS: Mapping[str, str] = {
    "dynamic": "its frequencies depend on the longest position of a call, so a stored key cannot be seen shifted; "
    "up to max_position_embeddings it equals default: load it with that",
    "longrope": "it switches frequencies with the length of a call, so a stored key cannot be seen shifted; "
    "choose a model that was extended by yarn",
}


@dataclass(frozen=True, kw_only=True, slots=True, eq=False)
class Rotary:
    """The rotary embedding of one kind of attention layer.

    The library multiplies cosines and sines of queries and of keys by an attention factor (YaRN, arXiv 2309.00071,
    section 3.4), which is no rotation: it would come in once more with every shift. Here the rotation stays pure and
    keys are stored without the factor; a query's rotary dimensions are multiplied by its square, once, before any
    rotation. Scores are the library's: the other dimensions of a partially rotated head carry no factor there either.

    Attributes:
        rope: The rotation; None in a model without positions in attention.
        attention_factor: What the library multiplies each of both sides by; 1 for all types but yarn.
    """

    rope: Rope | None
    attention_factor: float

    def weighted(self, q_HTD: Tensor) -> Tensor:
        """Unrotated queries with the attention factors of both sides in them, in their own dtype."""
        if self.rope is None or self.attention_factor == 1:
            return q_HTD
        weights_D = q_HTD.new_ones(q_HTD.shape[-1], dtype=torch.float64)
        weights_D[: self.rope.rotary_dim] = self.attention_factor**2
        # Rounded with the product, not before it.
        return (q_HTD * weights_D.to(torch.promote_types(q_HTD.dtype, torch.float32))).to(q_HTD.dtype)


def check_rope(config: Any, *, partial: bool) -> None:
    """Refuses a text configuration whose rotary embedding cannot be run exactly.

    Args:
        config: Of the library.
        partial: Whether the family's attention can rotate a part of a head.

    Raises:
        UnsupportedModel: with the reason and what is supported.
    """
    for parameters in _parameter_sets(config).values():
        kind = parameters.get("rope_type")
        if kind not in ROPE_TYPES:
            why = _REASONS.get(str(kind), "it is not implemented")
            raise UnsupportedModel(
                f"rope type {kind!r} is not supported: {why}; supported: {', '.join(ROPE_TYPES)}"
            )
        share = parameters.get("partial_rotary_factor") or 1.0
        if share != 1 and not partial:
            raise UnsupportedModel(
                f"partial_rotary_factor={share} is not supported: attention of {config.model_type} rotates whole "
                "heads; expected 1"
            )


def rotaries_of(model: PreTrainedModel) -> tuple[Rotary, ...]:
    """The rotary embedding of each layer; layers of one kind share it."""
    config = model.config.get_text_config()
    if getattr(model.model, "rotary_emb", None) is None:
        return (Rotary(rope=None, attention_factor=1.0),) * config.num_hidden_layers
    # A fresh module has the library's own formula in float32; the buffers of the model's were rounded by `model.to`.
    fresh: Any = type(model.model.rotary_emb)(config)
    by_kind = {
        kind: Rotary(
            rope=Rope(inverse_frequencies_R=_of(fresh, kind, "inv_freq").to(model.device, torch.float64)),
            attention_factor=float(_of(fresh, kind, "attention_scaling")),
        )
        for kind in _parameter_sets(config)
    }
    if None in by_kind:
        return (by_kind[None],) * config.num_hidden_layers
    return tuple(by_kind[kind] for kind in config.layer_types)


def _parameter_sets(config: Any) -> Mapping[str | None, Mapping[str, Any]]:
    """The rotary parameters of each kind of layer that there is, or those of all under None."""
    parameters = config.rope_parameters
    if "rope_type" in parameters:
        return {None: parameters}
    sets = {kind: parameters.get(kind) for kind in sorted(set(getattr(config, "layer_types", None) or ()))}
    if not sets or not all(sets.values()):
        raise UnsupportedModel(f"rope_parameters must name a rope_type, for all layers or for each kind: {parameters}")
    return sets


def _of(module: Any, kind: str | None, name: str) -> Any:
    return getattr(module, name if kind is None else f"{kind}_{name}")
