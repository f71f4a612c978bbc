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
    LlamaConfig,
    LlamaForCausalLM,
    PreTrainedModel,
    Qwen3_5ForCausalLM,
    Qwen3_5TextConfig,
    Qwen3Config,
    Qwen3ForCausalLM,
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


EVERY_FAMILY = (tiny_llama, tiny_qwen3, tiny_qwen35, tiny_gemma3)


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
                elif "norm" in name or name.endswith(("bias", "conv1d.weight")):
                    weight.add_(0.2 * torch.randn_like(weight))
    return model.to(dtype)
