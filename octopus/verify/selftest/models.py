"""Tiny models of random weights in which no fault can hide.

At the library's own initialisation a tiny model is nearly constant. Here weights are scaled so that logits are of size
about 2, attention is peaked, decays are slow enough for states to matter, and no norm weight or bias is neutral.
"""

from __future__ import annotations

from typing import Any

import torch
from transformers import (
    Gemma3ForCausalLM,
    Gemma3TextConfig,
    LlamaConfig,
    LlamaForCausalLM,
    PreTrainedModel,
    Qwen3_5ForCausalLM,
    Qwen3_5TextConfig,
    Qwen3Config,
    Qwen3ForCausalLM,
)

VOCABULARY, HIDDEN = 32, 48
COMMON: dict[str, Any] = {
    "vocab_size": VOCABULARY,
    "hidden_size": HIDDEN,
    "intermediate_size": 64,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "head_dim": 16,
    "tie_word_embeddings": True,
    "initializer_range": 0.125,
    "max_position_embeddings": 4096,
}
# A base small enough for every pair of dimensions to turn within a few positions.
ROPE = {"rope_type": "default", "rope_theta": 100.0}


def tiny_llama(dtype: torch.dtype, *, head_dim: int = 16) -> LlamaForCausalLM:
    """Two layers of attention, 4 query and 2 key/value heads, loaded with sdpa."""
    config = LlamaConfig(**COMMON | {"head_dim": head_dim}, num_hidden_layers=2, rope_parameters=ROPE)
    model: LlamaForCausalLM = scaled(LlamaForCausalLM, config, dtype)
    return model


def tiny_qwen3(dtype: torch.dtype) -> Qwen3ForCausalLM:
    """Two layers of attention with normalised queries and keys, rotated by YaRN with an attention factor of 1.14."""
    yarn = ROPE | {"rope_type": "yarn", "factor": 4.0, "original_max_position_embeddings": 1024}
    config = Qwen3Config(**COMMON, num_hidden_layers=2, rope_parameters=yarn)
    model: Qwen3ForCausalLM = scaled(Qwen3ForCausalLM, config, dtype)
    return model


def tiny_gemma3(dtype: torch.dtype) -> Gemma3ForCausalLM:
    """Sliding and full attention with rotations of their own; the window is shorter than an episode's paths."""
    config = Gemma3TextConfig(
        **COMMON,
        num_hidden_layers=2,
        layer_types=["sliding_attention", "full_attention"],
        sliding_window=5,
        query_pre_attn_scalar=12,
        rope_parameters={"sliding_attention": ROPE | {"rope_theta": 30.0}, "full_attention": ROPE},
    )
    model: Gemma3ForCausalLM = scaled(Gemma3ForCausalLM, config, dtype)
    return model


def tiny_qwen35(dtype: torch.dtype) -> Qwen3_5ForCausalLM:
    """Gated delta net, attention, twice; half of each head is rotary, which leaves dimensions that must not turn."""
    config = Qwen3_5TextConfig(
        **COMMON,
        num_hidden_layers=4,
        layer_types=["linear_attention", "full_attention"] * 2,
        linear_num_key_heads=2,
        linear_num_value_heads=4,
        linear_key_head_dim=8,
        linear_value_head_dim=8,
        linear_conv_kernel_dim=4,
        rope_parameters=ROPE | {"partial_rotary_factor": 0.5, "mrope_section": [2, 1, 1]},
    )
    model: Qwen3_5ForCausalLM = scaled(Qwen3_5ForCausalLM, config, dtype)
    return model


def scaled(model_class: type[PreTrainedModel], config: Any, dtype: torch.dtype) -> Any:
    """A model of these random weights: the same in every dtype, rounded."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        model: Any = model_class(config)  # drawn in float32: every dtype has the same weights, rounded
        model.eval()
        with torch.no_grad():
            model.get_input_embeddings().weight.mul_(2)
            for name, weight in model.named_parameters():
                if name.endswith("A_log"):
                    weight.uniform_(0.02, 0.5).log_()
                elif "norm" in name or name.endswith(("bias", "conv1d.weight")):
                    weight.add_(0.2 * torch.randn_like(weight))
    model.set_attn_implementation("sdpa")
    return model.to(dtype)
