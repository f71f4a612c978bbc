"""A policy as a configuration names it: its model, and the dialect that it acts in."""

from __future__ import annotations

import torch
from transformers import PreTrainedModel

from octopus.models.loading import load_model
from octopus.rollout.chat.dialect import Chat
from octopus.rollout.dialect import Dialect
from octopus.train.job_config import JobModelConfig
from octopus.train.policy import load_policy, policy_folder


def load_speaker(config: JobModelConfig) -> tuple[PreTrainedModel, Dialect]:
    """Loads the model and its dialect.

    Raises:
        ConfigError: There is no such policy, or its chat template cannot be used; see `Chat`.
        UnsupportedModel: Before any weights are read.
    """
    dtype = getattr(torch, config.dtype)
    if config.dialect == "codec":
        return load_policy(policy_folder(config.name), dtype=dtype, device=config.device)
    name = str(policy_folder(config.name))
    model, tokenizer = load_model(name, dtype=dtype, device=config.device, gguf_file=config.gguf_file)
    return model.eval(), Chat(tokenizer)
