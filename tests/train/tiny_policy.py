"""A policy from nothing: a Qwen3.5 of about 0.3M parameters and a codec of 2,048 tokens, in a folder."""

from __future__ import annotations

from functools import cache
from pathlib import Path

import torch
from tiny_models import rope_parameters
from transformers import Qwen3_5ForCausalLM, Qwen3_5TextConfig

from octopus.retrieval.corpus import Corpus
from octopus.retrieval.questions import split_of
from octopus.rollout.codec import VOCABULARY, Codec
from octopus.train.policy import save_policy


@cache
def codec() -> Codec:
    """Trained on the documents of the train split."""
    documents = [document for document in Corpus.load() if split_of(document.id) == "train"]
    return Codec.train(f"{document.name} : {document.text}" for document in documents)


def model(seed: int = 0) -> Qwen3_5ForCausalLM:
    """Random weights, at the library's own initialisation."""
    config = Qwen3_5TextConfig(
        vocab_size=VOCABULARY,
        hidden_size=64,
        intermediate_size=128,
        num_hidden_layers=3,
        layer_types=["linear_attention", "full_attention", "full_attention"],
        num_attention_heads=2,
        num_key_value_heads=1,
        head_dim=32,
        tie_word_embeddings=True,
        linear_num_key_heads=2,
        linear_num_value_heads=2,
        linear_key_head_dim=16,
        linear_value_head_dim=16,
        linear_conv_kernel_dim=4,
        rope_parameters=rope_parameters(partial_rotary_factor=0.5, mrope_section=[3, 3, 2]),
    )
    with torch.random.fork_rng():
        torch.manual_seed(seed)
        return Qwen3_5ForCausalLM(config)


def policy_folder(folder: Path) -> Path:
    """Writes the policy to a folder and returns it."""
    save_policy(folder, model(), codec())
    return folder
