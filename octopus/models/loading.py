"""Weights and tokenizer from a model name or folder."""

from __future__ import annotations

import torch
from transformers import (
    AutoConfig,
    AutoModelForCausalLM,
    AutoTokenizer,
    PreTrainedModel,
    PreTrainedTokenizerBase,
)

from octopus.models.families import family_of


def load_model(
    name_or_path: str, *, dtype: torch.dtype, device: torch.device | str, gguf_file: str | None = None
) -> tuple[PreTrainedModel, PreTrainedTokenizerBase]:
    """Loads a causal language model and its tokenizer through the Hugging Face library.

    Args:
        name_or_path: Hub name or local folder.
        dtype: Of the weights.
        device: Where they go.
        gguf_file: Name of a GGUF file in that place, whose weights are dequantised.

    Raises:
        UnsupportedModel: before any weights are read.
    """
    source = {} if gguf_file is None else {"gguf_file": gguf_file}
    config = AutoConfig.from_pretrained(name_or_path, **source)
    family_of(config)
    model = AutoModelForCausalLM.from_pretrained(name_or_path, config=config, dtype=dtype, **source)
    model.to(device)  # type: ignore[arg-type]  # the library wraps `to` without its signature
    return model, AutoTokenizer.from_pretrained(name_or_path, **source)
