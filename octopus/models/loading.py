"""Weights and tokenizer from a model name or folder.

Whoever made the files is not trusted: weights are safetensors (or GGUF), never a pickle; no field of a configuration
chooses code; an index names files of its own folder only.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import torch
from transformers import (
    AutoConfig,
    AutoModelForCausalLM,
    AutoTokenizer,
    PreTrainedConfig,
    PreTrainedModel,
    PreTrainedTokenizerBase,
)

from octopus.core.errors import UnsupportedModel
from octopus.core.names import is_plain_name
from octopus.models.families import family_of

INDEX = "model.safetensors.index.json"


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
    config = read_config(name_or_path, **source)
    folder = Path(name_or_path)
    if gguf_file is None and folder.is_dir():  # On the hub the library checks the names that it asks for.
        check_weights(folder)
    model = AutoModelForCausalLM.from_pretrained(
        name_or_path, config=config, dtype=dtype, use_safetensors=True, trust_remote_code=False, **source
    )
    model.to(device)  # type: ignore[arg-type]  # the library wraps `to` without its signature
    return model, AutoTokenizer.from_pretrained(name_or_path, trust_remote_code=False, **source)


def read_config(name_or_path: str | Path, **source: Any) -> PreTrainedConfig:
    """The configuration of a listed family.

    Raises:
        UnsupportedModel: Of another one, or it names code or files that are to be loaded.
    """
    config = AutoConfig.from_pretrained(name_or_path, trust_remote_code=False, **source)
    family_of(config)
    for part in (config, *(getattr(config, name) for name in config.sub_configs)):
        # Of the first the library would load a kernel by that name; of the second the weights.
        for field in ("_attn_implementation", "transformers_weights"):
            value = getattr(part, field, None)
            if value is not None:
                raise UnsupportedModel(
                    f"{name_or_path}: its configuration sets {field.removeprefix('_')} to {value!r}, which would "
                    "choose what is loaded; remove that line of config.json"
                )
    return config


def check_weights(folder: Path) -> None:
    """Raises UnsupportedModel unless the folder holds safetensors, all that its index, if any, names."""
    index = folder / INDEX
    if not index.is_file():
        if not (folder / "model.safetensors").is_file():
            raise UnsupportedModel(
                f"{folder} holds no model.safetensors; other formats of weights are pickles, which are never loaded: "
                "convert them (save_pretrained writes safetensors)"
            )
        return
    try:
        names = set(json.loads(index.read_bytes())["weight_map"].values())
    except (ValueError, LookupError, TypeError, AttributeError, RecursionError) as error:
        raise UnsupportedModel(f"{index} is no index of weights: {error!r}") from error
    for name in names:
        if not is_plain_name(name) or not name.endswith(".safetensors"):
            raise UnsupportedModel(f"{index} names {name!r}; expected a .safetensors file in the same folder")
    if missing := sorted(name for name in names if not (folder / name).is_file()):
        raise UnsupportedModel(
            f"{folder} lacks {len(missing)} of the {len(names)} files that {INDEX} names: {', '.join(missing[:5])}; "
            "fetch them again"
        )
