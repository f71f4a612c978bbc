"""A policy on disk: a folder with a model and the codec that it was trained with."""

from __future__ import annotations

import tempfile
from pathlib import Path

import torch
from safetensors.torch import load_model, save_file
from transformers import AutoModelForCausalLM, PreTrainedModel

from octopus.core.errors import ConfigError
from octopus.models.loading import read_config
from octopus.rollout.codec import Codec
from octopus.rollout.dialect import Dialect
from octopus.train.adapter import plain_state
from octopus.train.disk import flush

TOKENIZER = "tokenizer.json"
WEIGHTS = "model.safetensors"
BEST = "best"
"""The folder, in a job's folder, of its best policy."""
SHIPPED = Path(__file__).parent.parent / "shipped"


def policy_folder(name: str) -> Path:
    """The folder that a name means: `shipped` the policy of this package, a finished job's folder its best policy."""
    folder = SHIPPED if name == "shipped" else Path(name)
    return folder / BEST if (folder / BEST).is_dir() else folder


def load_policy(folder: Path, *, dtype: torch.dtype, device: str) -> tuple[PreTrainedModel, Codec]:
    """Loads the model and the codec that `save_policy` wrote.

    Raises:
        ConfigError: The folder does not hold a model and a codec, or the model has fewer tokens than the codec.
        UnsupportedModel: Before any weights are read.
    """
    for name in ("config.json", WEIGHTS, TOKENIZER):
        if not (folder / name).is_file():
            raise ConfigError(f"{folder} holds no {name}; expected the folder of a policy: a model and its codec")
    codec = Codec.load(folder / TOKENIZER)
    config = read_config(folder)
    if config.vocab_size < codec.vocabulary:
        raise ConfigError(f"{folder}: the codec has {codec.vocabulary} tokens, the model only {config.vocab_size}")
    model = AutoModelForCausalLM.from_config(config, dtype=dtype)
    load_model(model, folder / WEIGHTS)
    return model.to(device).eval(), codec


def save_policy(folder: Path, model: PreTrainedModel, codec: Dialect) -> None:
    """Writes a model, its adapter merged, and its codec, whole or not at all; an earlier one there is replaced."""
    folder.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix=".saving-", dir=folder.parent) as scratch:
        draft = Path(scratch) / "new"
        draft.mkdir()
        model.config.save_pretrained(draft)
        if model.generation_config is not None:
            model.generation_config.save_pretrained(draft)
        # Tied weights once, under the name of the embedding, as the library expects them.
        tensors = {name: tensor.contiguous() for name, tensor in plain_state(model).items()}
        save_file(tensors, draft / WEIGHTS, metadata={"format": "pt"})
        codec.save(draft / TOKENIZER)
        for path in (*draft.iterdir(), draft):
            flush(path)
        if folder.exists():
            folder.rename(Path(scratch) / "old")
        draft.rename(folder)
        flush(folder.parent)
