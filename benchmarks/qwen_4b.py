"""A model of the shape of Qwen3.5-4B with random weights, and episode shapes as packs for it."""

from __future__ import annotations

from collections.abc import Collection, Sequence

import numpy as np
import torch
from transformers import Qwen3_5ForCausalLM, Qwen3_5TextConfig

from octopus.core.segment import Segment
from octopus.rollout.episode import Episode, SampledToken
from octopus.train.packing import Pack, evenly, pack_rated

VOCABULARY = 248_320


def config(layers: int = 32, *, width: int = 2_560, vocabulary: int = VOCABULARY) -> Qwen3_5TextConfig:
    """Every fourth layer attends; `width` other than the model's own makes a small one of the same kind."""
    kinds = ["full_attention" if number % 4 == 3 else "linear_attention" for number in range(layers)]
    return Qwen3_5TextConfig(
        hidden_size=width,
        intermediate_size=width * 18 // 5,
        num_hidden_layers=layers,
        num_attention_heads=16,
        num_key_value_heads=4,
        head_dim=256,
        linear_num_key_heads=16,
        linear_num_value_heads=32,
        linear_key_head_dim=128,
        linear_value_head_dim=128,
        vocab_size=vocabulary,
        tie_word_embeddings=True,
        max_position_embeddings=262_144,
        layer_types=kinds,
        rope_parameters={"rope_type": "default", "rope_theta": 1e7, "partial_rotary_factor": 0.25},
    )


def new_model(
    settings: Qwen3_5TextConfig, *, dtype: torch.dtype, device: str, seed: int = 0
) -> Qwen3_5ForCausalLM:
    """Random weights, drawn where they are to be."""
    torch.manual_seed(seed)
    before = torch.get_default_dtype()
    torch.set_default_dtype(dtype)
    try:
        with torch.device(device):
            return Qwen3_5ForCausalLM(settings)
    finally:
        torch.set_default_dtype(before)


def pack_of(
    segments: Sequence[Segment], *, given: Collection[int] = (0,), vocabulary: int = VOCABULARY, seed: int = 0
) -> Pack:
    """Every token that follows a segment's first was sampled, but for the `given` segments; tokens are random.

    What was recorded for them is the log-probability of a model that knows nothing.
    """
    rng = np.random.default_rng(seed)
    for segment in segments:
        segment.tokens = rng.integers(0, vocabulary, len(segment.tokens)).tolist()
    sampled = tuple(
        SampledToken(segment=segment, offset=offset, log_probability=-float(np.log(vocabulary)), live=True)
        for number, segment in enumerate(segments)
        if number not in given
        for offset in range(1, len(segment.tokens))
    )
    episode = Episode(name="shape", segments=tuple(segments), waits=(), sampled=sampled, reward=1.0)
    return pack_rated([evenly(episode, 1.0)])
