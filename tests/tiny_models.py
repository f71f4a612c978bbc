"""Tiny models of every family, with weights scaled so that logits are of size about 2.

At the library's own initialisation a tiny model is nearly constant and hides faults: here attention is peaked, decays
are slow enough for states to matter, and no norm weight or bias stands at its neutral value.
"""

from __future__ import annotations

from typing import Any

import torch
from transformers import (
    Gemma3ForCausalLM,
    Gemma3TextConfig,
    GraniteMoeHybridConfig,
    GraniteMoeHybridForCausalLM,
    LlamaConfig,
    LlamaForCausalLM,
    NemotronHConfig,
    NemotronHForCausalLM,
    PreTrainedModel,
    Qwen3_5ForCausalLM,
    Qwen3_5TextConfig,
    Qwen3Config,
    Qwen3ForCausalLM,
    Qwen3NextConfig,
    Qwen3NextForCausalLM,
)

VOCABULARY = 64


def tiny_llama(
    *,
    heads: int = 4,
    kv_heads: int = 2,
    head_dim: int = 32,
    layers: int = 2,
    dtype: torch.dtype = torch.float64,
    seed: int = 0,
    **settings: Any,
) -> LlamaForCausalLM:
    """A Llama with hidden size 64 and tied heads; `settings` go to its configuration."""
    config = LlamaConfig(
        **_common(heads, kv_heads, head_dim, layers) | {"rope_parameters": rope_parameters()} | settings
    )
    return _scaled(LlamaForCausalLM, config, dtype, seed)


def tiny_qwen3(
    *,
    heads: int = 4,
    kv_heads: int = 2,
    head_dim: int = 32,
    layers: int = 2,
    dtype: torch.dtype = torch.float64,
    seed: int = 0,
    **settings: Any,
) -> Qwen3ForCausalLM:
    """A Qwen3 (normalised queries and keys) with hidden size 64 and tied heads."""
    config = Qwen3Config(
        **_common(heads, kv_heads, head_dim, layers) | {"rope_parameters": rope_parameters()} | settings
    )
    return _scaled(Qwen3ForCausalLM, config, dtype, seed)


def tiny_gemma3(
    *,
    heads: int = 4,
    kv_heads: int = 2,
    head_dim: int = 32,
    layers: int = 4,
    window: int = 5,
    dtype: torch.dtype = torch.float64,
    seed: int = 0,
    **settings: Any,
) -> Gemma3ForCausalLM:
    """A Gemma-3 with hidden size 64, tied heads and layers sliding, full, sliding, full, ... of different bases.

    Its scores are scaled by `query_pre_attn_scalar`, which is not the head dimension here.
    """
    gemma = {
        "layer_types": [("sliding_attention", "full_attention")[i % 2] for i in range(layers)],
        "sliding_window": window,
        "query_pre_attn_scalar": 24,
        "rope_parameters": {
            "sliding_attention": rope_parameters(rope_theta=30.0),
            "full_attention": rope_parameters(rope_type="linear", factor=2.0),
        },
    }
    config = Gemma3TextConfig(**_common(heads, kv_heads, head_dim, layers) | gemma | settings)
    return _scaled(Gemma3ForCausalLM, config, dtype, seed)


def tiny_qwen35(
    *,
    heads: int = 4,
    kv_heads: int = 2,
    head_dim: int = 32,
    layers: int = 4,
    dtype: torch.dtype = torch.float64,
    seed: int = 0,
    **settings: Any,
) -> Qwen3_5ForCausalLM:
    """A Qwen3.5 with hidden size 64, tied heads and layers linear, full, linear, full, ...

    Partial rotary 0.25; recurrent layers with 2 key and 4 value heads of 16, kernel 4.
    """
    recurrent = {
        "layer_types": [("linear_attention", "full_attention")[i % 2] for i in range(layers)],
        "linear_num_key_heads": 2,
        "linear_num_value_heads": 4,
        "linear_key_head_dim": 16,
        "linear_value_head_dim": 16,
        "linear_conv_kernel_dim": 4,
        "rope_parameters": rope_parameters(partial_rotary_factor=0.25, mrope_section=[2, 1, 1]),
    }
    config = Qwen3_5TextConfig(**_common(heads, kv_heads, head_dim, layers) | recurrent | settings)
    return _scaled(Qwen3_5ForCausalLM, config, dtype, seed)


def tiny_qwen3_next(
    *, layers: int = 4, dtype: torch.dtype = torch.float64, seed: int = 0, **settings: Any
) -> Qwen3NextForCausalLM:
    """A Qwen3-Next with hidden size 64 and layers linear, full, linear, full, ..., the last of them without experts.

    Partial rotary 0.25; recurrent layers like those of `tiny_qwen35`; 4 experts, of which 2 are chosen.
    """
    own = {
        "layer_types": [("linear_attention", "full_attention")[i % 2] for i in range(layers)],
        "linear_num_key_heads": 2,
        "linear_num_value_heads": 4,
        "linear_key_head_dim": 16,
        "linear_value_head_dim": 16,
        "rope_parameters": rope_parameters(partial_rotary_factor=0.25),
        "mlp_only_layers": [layers - 1],
        "num_experts": 4,
        "num_experts_per_tok": 2,
        "moe_intermediate_size": 32,
        "shared_expert_intermediate_size": 32,
    }
    return _scaled(Qwen3NextForCausalLM, Qwen3NextConfig(**_common(4, 2, 32, layers) | own | settings), dtype, seed)


def tiny_granite(
    *, layers: int = 3, dtype: torch.dtype = torch.float64, seed: int = 0, **settings: Any
) -> GraniteMoeHybridForCausalLM:
    """A Granite 4 with hidden size 64 and layers linear, full, linear, ...; attention has no positions.

    Mamba-2 with 8 heads of 16 in 2 groups, state size 12; 4 experts, of which 2 are chosen; every multiplier counts.
    """
    own = {
        "layer_types": [("linear_attention", "full_attention")[i % 2] for i in range(layers)],
        "position_embedding_type": "nope",
        "rope_parameters": rope_parameters(),
        "mamba_n_heads": 8,
        "mamba_n_groups": 2,
        "mamba_d_state": 12,
        "shared_intermediate_size": 48,
        "intermediate_size": 32,
        "num_local_experts": 4,
        "embedding_multiplier": 1.5,
        "attention_multiplier": 0.3,
        "residual_multiplier": 0.7,
        "logits_scaling": 1.3,
    }
    config = GraniteMoeHybridConfig(**_common(4, 2, 16, layers) | own | settings)
    return _scaled(GraniteMoeHybridForCausalLM, config, dtype, seed)


def tiny_nemotron(
    *, dtype: torch.dtype = torch.float64, seed: int = 0, **settings: Any
) -> NemotronHForCausalLM:
    """A Nemotron-H with hidden size 64 and blocks of every kind; attention has no positions.

    Mamba-2 with 8 heads of 12 in 4 groups, state size 10; 8 experts in 2 groups, of which 2 of one group are chosen.
    """
    own = {
        "layers_block_type": ["linear_attention", "mlp", "full_attention", "moe", "linear_attention"],
        "mamba_num_heads": 8,
        "mamba_head_dim": 12,
        "n_groups": 4,
        "ssm_state_size": 10,
        "n_routed_experts": 8,
        "n_group": 2,
        "topk_group": 1,
        "moe_intermediate_size": 32,
        "moe_shared_expert_intermediate_size": 32,
        "routed_scaling_factor": 1.5,
    }
    common = _common(4, 2, 32, 5) | {"tie_word_embeddings": False}
    del common["num_hidden_layers"]
    return _scaled(NemotronHForCausalLM, NemotronHConfig(**common | own | settings), dtype, seed)


HYBRIDS = (tiny_qwen3_next, tiny_granite, tiny_nemotron)
EVERY_FAMILY = (tiny_llama, tiny_qwen3, tiny_qwen35, tiny_gemma3, *HYBRIDS)


def checkpointed(model: PreTrainedModel) -> PreTrainedModel:
    """Switches activation checkpointing of every layer on, under the library's old or new name for it."""
    enable = getattr(model, "activation_checkpointing_enable", model.gradient_checkpointing_enable)
    enable({"use_reentrant": False})
    return model.train()


def rope_parameters(**changes: Any) -> dict[str, Any]:
    """Default rotary parameters with a base small enough that tiny lengths turn every pair."""
    return {"rope_type": "default", "rope_theta": 100.0} | changes


def _common(heads: int, kv_heads: int, head_dim: int, layers: int) -> dict[str, Any]:
    return {
        "vocab_size": VOCABULARY,
        "hidden_size": 64,
        "intermediate_size": 96,
        "num_hidden_layers": layers,
        "num_attention_heads": heads,
        "num_key_value_heads": kv_heads,
        "head_dim": head_dim,
        "tie_word_embeddings": True,
        "initializer_range": 0.125,
    }


def _scaled(model_class: type[PreTrainedModel], config: Any, dtype: torch.dtype, seed: int) -> Any:
    with torch.random.fork_rng():
        torch.manual_seed(seed)
        model = model_class(config).eval()  # Random numbers are drawn in float32, so every dtype has the same weights.
        with torch.no_grad():
            model.get_input_embeddings().weight.mul_(2)
            for name, weight in model.named_parameters():
                if name.endswith("A_log"):
                    weight.uniform_(0.02, 0.5).log_()
                elif name.endswith("mixer.dt_bias"):  # Nemotron-H's steps are so short that nothing would be written.
                    weight.uniform_(-1, 1)
                elif "norm" in name or name.endswith(("bias", "conv1d.weight")):
                    weight.add_(0.2 * torch.randn_like(weight))
            for name, buffer in model.named_buffers():
                if name.endswith("e_score_correction_bias"):
                    buffer.uniform_(-0.5, 0.5)
    if hasattr(config, "num_experts_per_tok"):  # The library's fastest way to run experts knows no float64.
        model.set_experts_implementation("eager")
    return model.to(dtype)
