"""Tiny models of the families with experts or Mamba-2. All experts are chosen, so that rounding flips no choice."""

from __future__ import annotations

from typing import Any

import torch
from transformers import (
    GraniteMoeHybridConfig,
    GraniteMoeHybridForCausalLM,
    NemotronHConfig,
    NemotronHForCausalLM,
    PreTrainedModel,
    Qwen3NextConfig,
    Qwen3NextForCausalLM,
)

from octopus.verify.selftest.models import COMMON, ROPE, scaled

LAYERS = ["linear_attention", "full_attention"] * 2


def tiny_qwen3_next(dtype: torch.dtype) -> Qwen3NextForCausalLM:
    """Gated delta net, attention, twice; half of each head is rotary; experts behind each but the last."""
    config = Qwen3NextConfig(
        **COMMON,
        num_hidden_layers=4,
        layer_types=LAYERS,
        linear_num_key_heads=2,
        linear_num_value_heads=4,
        linear_key_head_dim=8,
        linear_value_head_dim=8,
        rope_parameters=ROPE | {"partial_rotary_factor": 0.5},
        mlp_only_layers=[3],
        num_experts=3,
        num_experts_per_tok=3,
        moe_intermediate_size=24,
        shared_expert_intermediate_size=24,
    )
    model: Qwen3NextForCausalLM = _with_experts(Qwen3NextForCausalLM, config, dtype)
    return model


def tiny_granite(dtype: torch.dtype) -> GraniteMoeHybridForCausalLM:
    """Mamba-2, attention without positions, twice; every multiplier counts."""
    config = GraniteMoeHybridConfig(
        **COMMON | {"intermediate_size": 24},
        num_hidden_layers=4,
        layer_types=LAYERS,
        position_embedding_type="nope",
        rope_parameters=ROPE,
        mamba_n_heads=6,
        mamba_n_groups=2,
        mamba_d_state=8,
        shared_intermediate_size=24,
        num_local_experts=3,
        num_experts_per_tok=3,
        embedding_multiplier=1.5,
        attention_multiplier=0.3,
        residual_multiplier=0.7,
        logits_scaling=1.3,
    )
    model: GraniteMoeHybridForCausalLM = _with_experts(GraniteMoeHybridForCausalLM, config, dtype)
    return model


def tiny_nemotron(dtype: torch.dtype) -> NemotronHForCausalLM:
    """Mamba-2, feed-forward, attention without positions, experts, Mamba-2: a block of its own each."""
    config = NemotronHConfig(
        **COMMON | {"tie_word_embeddings": False},
        layers_block_type=["linear_attention", "mlp", "full_attention", "moe", "linear_attention"],
        mamba_num_heads=6,
        mamba_head_dim=8,
        n_groups=2,
        ssm_state_size=8,
        n_routed_experts=2,
        n_group=1,
        topk_group=1,
        num_experts_per_tok=2,
        moe_intermediate_size=24,
        moe_shared_expert_intermediate_size=24,
    )
    model: NemotronHForCausalLM = _with_experts(NemotronHForCausalLM, config, dtype)
    return model


def _with_experts(model_class: type[PreTrainedModel], config: Any, dtype: torch.dtype) -> Any:
    """Experts one after another: the library's other ways take no float64."""
    model = scaled(model_class, config, dtype)
    model.set_experts_implementation("eager")
    return model
