"""Our forwards, bound on the instances of the library's own modules.

The library's decoder layers still run, so whatever hooks them (sharding, activation checkpointing) keeps working, and
no name in the state dict changes. What is replaced, and why:

- norms, routers and the recurrent layer, which the library computes in float32 whatever the weights: here in
  `promote(dtype, float32)`; like gated units they are left to `Layers`, of which some fuse them;
- the model's own forward, which would make the logits of every row: it is still what runs the layers, so that hooks on
  the whole model are called too;
- the rotary embedding: it turns by zero, so that queries and keys reach attention unrotated;
- the attention function: it asks the context, which travels as the keyword `octopus`. No mask function is registered
  beside it, and for a name without one the library makes no mask and does not look for packed sequences (which it
  would find wherever positions jump).

Letters: B = 1, T rows, H query heads, G key/value heads, D head dimension, C hidden channels, X any leading
dimensions.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from types import MethodType
from typing import Any

import torch
from torch import Tensor
from torch.nn import Module
from torch.nn.functional import silu, softplus
from transformers import AttentionInterface, PreTrainedModel

from octopus.models.context import Context, DeltaLayer
from octopus.models.layers.layer import Layers
from octopus.models.layers.plain import normed, promoted
from octopus.models.mamba_layer import MambaLayer
from octopus.models.routers import granite_mixture, grouped_router, softmax_router

NAME = "octopus"


def bind(model: PreTrainedModel, layers: Layers) -> None:
    """Binds our forwards on a model's modules, in place. Binding twice does no harm; wrap the model afterwards."""
    AttentionInterface.register(NAME, attention)
    model.set_attn_implementation(NAME)
    for module in model.modules():
        forward = _FORWARDS.get(type(module).__name__)
        if forward is not None:
            module.forward = MethodType(partial(forward, layers), module)
        elif _is_silu_unit(module):
            module.forward = MethodType(partial(_gated_unit, layers), module)
    model.forward = MethodType(_last_hidden_state, model)


def attention(
    module: Any,
    q_BHTD: Tensor,
    k_BGTD: Tensor,
    v_BGTD: Tensor,
    attention_mask: None,
    *,
    scaling: float,
    sliding_window: int | None = None,
    octopus: Context | None = None,
    **_: object,
) -> tuple[Tensor, None]:
    """The library's attention function: everything is left to the context. The window is the layer's own."""
    out_HTD = _required(octopus).attend(
        module.layer_idx, q_BHTD[0], k_BGTD[0], v_BGTD[0], scale=scaling, window=sliding_window
    )
    return out_HTD.transpose(0, 1)[None], None


def _required(context: Context | None) -> Context:
    if context is None:
        raise TypeError("this model is bound to Octopus: call it through Backbone.packed or Backbone.paged")
    return context


def _last_hidden_state(model: Any, *ids: Tensor, **inputs: Any) -> Tensor:
    """[B, T, C] after the final norm. Logits are made by whoever needs them, of chosen rows."""
    return model.model(*ids, **inputs).last_hidden_state


def _no_rotation(
    _: Layers, module: Any, x_BTC: Tensor, position_ids: Tensor, layer_type: str | None = None
) -> tuple[Tensor, Tensor]:
    """Cosine 1 and sine 0, broadcast over the rows. Where layers differ the library asks once for each kind."""
    frequencies_R = getattr(module, f"{layer_type}_inv_freq" if layer_type else "inv_freq")
    shape = (1, 1, 2 * frequencies_R.shape[0])
    return x_BTC.new_ones(shape), x_BTC.new_zeros(shape)


def _rms_norm(layers: Layers, module: Any, x_XD: Tensor) -> Tensor:
    return layers.rms_norm(x_XD, module.weight, module.variance_epsilon)


def _zero_centred_rms_norm(layers: Layers, module: Any, x_XD: Tensor) -> Tensor:
    return layers.rms_norm(x_XD, 1 + promoted(module.weight), module.eps)


def _gated_rms_norm(layers: Layers, module: Any, x_XD: Tensor, gate_XD: Tensor) -> Tensor:
    return layers.gated_rms_norm(x_XD, gate_XD, module.weight, module.variance_epsilon)


def _group_rms_norm_of_gated(_: Layers, module: Any, x_TC: Tensor, gate_TC: Tensor) -> Tensor:
    """Mamba-2 gates first and normalises each group of channels by itself; older Granite modules know one group."""
    gated_TC = promoted(x_TC) * silu(promoted(gate_TC))
    grouped_TGX = gated_TC.unflatten(-1, (-1, getattr(module, "group_size", x_TC.shape[-1])))
    return (module.weight * normed(grouped_TGX, module.variance_epsilon).flatten(1)).to(gate_TC.dtype)


def _gated_unit(layers: Layers, module: Any, x_XC: Tensor) -> Tensor:
    hidden_XC: Tensor = module.down_proj(layers.swiglu(module.gate_proj(x_XC), module.up_proj(x_XC)))
    return hidden_XC


def _is_silu_unit(module: Module) -> bool:
    """Of the families that are run all call it so; its activation is named only in the configuration."""
    parts = ("gate_proj", "up_proj", "down_proj", "act_fn", "config")
    return all(hasattr(module, part) for part in parts) and getattr(module.config, "hidden_act", None) == "silu"


def _gated_delta_net(
    _: Layers, module: Any, hidden_states: Tensor, octopus: Context | None = None, **__: object
) -> Tensor:
    """Projections, gated norm and output run once for the whole row; the context runs convolution and scan."""
    x_TC = hidden_states[0]
    columns_TC, b_TH, a_TH = module.in_proj_qkv(x_TC), module.in_proj_b(x_TC), module.in_proj_a(x_TC)
    return _delta_rule(module, _required(octopus), columns_TC, module.in_proj_z(x_TC), b_TH, a_TH)


def _grouped_gated_delta_net(
    _: Layers, module: Any, hidden_states: Tensor, octopus: Context | None = None, **__: object
) -> Tensor:
    """Qwen3-Next: the same, but two projections lay together what belongs to one key head."""
    x_TC, key_heads = hidden_states[0], module.num_k_heads
    parts_TJX = module.in_proj_qkvz(x_TC).unflatten(-1, (key_heads, -1))
    values = module.value_dim // key_heads
    q_TC, k_TC, v_TC, z_TC = (
        part.flatten(1) for part in parts_TJX.split((module.head_k_dim, module.head_k_dim, values, values), dim=-1)
    )
    b_TH, a_TH = (x.flatten(1) for x in module.in_proj_ba(x_TC).unflatten(-1, (key_heads, -1)).chunk(2, dim=-1))
    return _delta_rule(module, _required(octopus), torch.cat((q_TC, k_TC, v_TC), dim=-1), z_TC, b_TH, a_TH)


def _delta_rule(
    module: Any, octopus: Context, columns_TC: Tensor, gate_TC: Tensor, b_TH: Tensor, a_TH: Tensor
) -> Tensor:
    projected = DeltaLayer(
        columns_TC=columns_TC,
        weight_CW=module.conv1d.weight[:, 0],
        log_decay_TH=-promoted(module.A_log).exp() * softplus(promoted(a_TH) + promoted(module.dt_bias)),
        beta_TH=promoted(b_TH).sigmoid(),
        key_heads=module.num_k_heads,
        key_dim=module.head_k_dim,
        value_dim=module.head_v_dim,
    )
    out_THV = octopus.recur(module.layer_idx, projected)
    return module.out_proj(module.norm(out_THV, gate_TC.view_as(out_THV)).flatten(1))[None]


def _mamba_mixer(
    _: Layers, module: Any, hidden_states: Tensor, octopus: Context | None = None, **__: object
) -> Tensor:
    """Mamba-2. The library limits step sizes in its chunked scan but not where it decodes; here they always are."""
    sizes = (module.intermediate_size, module.conv_dim, module.num_heads)
    gate_TC, columns_TC, step_TH = module.in_proj(hidden_states[0]).split(sizes, dim=-1)
    shortest, longest = module.time_step_limit
    dt_TH = softplus(promoted(step_TH) + promoted(module.dt_bias)).clamp(shortest, longest)
    projected = MambaLayer(
        columns_TC=columns_TC,
        weight_CW=module.conv1d.weight[:, 0],
        bias_C=module.conv1d.bias,
        log_decay_TH=-promoted(module.A_log).exp() * dt_TH,
        dt_TH=dt_TH,
        skip_H=module.D,
        groups=module.n_groups,
        state_size=module.ssm_state_size,
    )
    out_THV = _required(octopus).recur(module.layer_idx, projected)
    return module.out_proj(module.norm(out_THV.flatten(1), gate_TC))[None]


_FORWARDS: Mapping[str, Callable[..., object]] = {
    "Gemma3RMSNorm": _zero_centred_rms_norm,
    "Gemma3RotaryEmbedding": _no_rotation,
    "GraniteMoeHybridMambaLayer": _mamba_mixer,
    "GraniteMoeHybridMoE": granite_mixture,
    "GraniteMoeHybridRMSNorm": _rms_norm,
    "GraniteMoeHybridRMSNormGated": _group_rms_norm_of_gated,
    "GraniteMoeHybridRotaryEmbedding": _no_rotation,
    "LlamaRMSNorm": _rms_norm,
    "LlamaRotaryEmbedding": _no_rotation,
    "NemotronHMamba2Mixer": _mamba_mixer,
    "NemotronHRMSNorm": _rms_norm,
    "NemotronHRMSNormGated": _group_rms_norm_of_gated,
    "NemotronHTopkRouter": grouped_router,
    "Qwen3NextGatedDeltaNet": _grouped_gated_delta_net,
    "Qwen3NextRMSNorm": _zero_centred_rms_norm,
    "Qwen3NextRMSNormGated": _gated_rms_norm,
    "Qwen3NextRotaryEmbedding": _no_rotation,
    "Qwen3NextTopKRouter": softmax_router,
    "Qwen3RMSNorm": _rms_norm,
    "Qwen3RotaryEmbedding": _no_rotation,
    "Qwen3_5RMSNorm": _zero_centred_rms_norm,
    "Qwen3_5RMSNormGated": _gated_rms_norm,
    "Qwen3_5TextRotaryEmbedding": _no_rotation,
    "Zamba2RMSNormGated": _group_rms_norm_of_gated,  # Nemotron-H's in transformers 5.17.
    "Qwen3_5GatedDeltaNet": _gated_delta_net,
}
