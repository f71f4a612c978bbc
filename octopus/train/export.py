"""A trained policy as a Hugging Face folder, which `from_pretrained` loads bit by bit as it was trained.

    config.json, generation_config.json, model*.safetensors, tokenizer.json, tokenizer_config.json, ...

An adapter is merged into the weights.
"""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import Any

import torch
from safetensors import safe_open
from transformers import GenerationConfig, PreTrainedModel

from octopus.core.errors import ConfigError, OctopusError
from octopus.models.loading import load_model
from octopus.train import saves
from octopus.train.adapter import add_adapter, plain_state
from octopus.train.disk import flush
from octopus.train.job_config import load_job
from octopus.train.policy import BEST, WEIGHTS, load_policy
from octopus.train.saves.manifest import MANIFEST
from octopus.train.saves.model import restore_model
from octopus.train.saves.tensors import read_tensors
from octopus.train.speaker import load_speaker

SHARD_SIZE = "5GB"


def export(source: Path, out: Path) -> Path:
    """Writes the policy of a run, a save or a policy's folder; whole or not at all.

    Args:
        source: A run's folder (its best policy; its newest save if it has not finished), a save, or a policy's folder.
        out: A folder that does not exist or is empty.

    Returns:
        What was exported: the folder within `source`.

    Raises:
        ConfigError: `source` is none of these.
        OctopusError: `out` is in use, or the save is damaged.
    """
    if out.exists() and (not out.is_dir() or any(out.iterdir())):
        raise OctopusError(f"{out} exists and is not an empty folder; nothing is overwritten, choose another place")
    found = _found(source)
    model, tokenizer = _of_save(found) if (found / MANIFEST).is_file() else _of_policy(found)
    if model.generation_config is None or model.generation_config.eos_token_id is None:
        model.generation_config = GenerationConfig(eos_token_id=tokenizer.eos_token_id)
    out.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix=".exporting-", dir=out.parent) as scratch:
        draft = Path(scratch) / "draft"
        model.save_pretrained(draft, max_shard_size=SHARD_SIZE)
        tokenizer.save_pretrained(draft)
        for path in (*draft.iterdir(), draft):
            flush(path)
        draft.rename(out)
    flush(out.parent)
    return found


def _found(source: Path) -> Path:
    """The folder of the policy or the save that is meant."""
    for folder in (source / BEST, source):
        if (folder / WEIGHTS).is_file() and (folder / "config.json").is_file():
            return folder
    if (source / MANIFEST).is_file():
        return source
    if not source.is_dir():
        raise ConfigError(f"{source} is no folder; expected that of a run, a save or a policy")
    newest = saves.newest(source, report=lambda line: None)
    if newest is None:
        raise ConfigError(f"{source} holds no policy and no whole save; expected the folder of one, or of a run")
    return newest.path


def _of_policy(folder: Path) -> tuple[PreTrainedModel, Any]:
    """The model of a policy's folder in the dtype of its file, and its tokenizer."""
    with safe_open(folder / WEIGHTS, "pt") as file:
        dtypes = {file.get_tensor(name).dtype for name in file.keys()}  # noqa: SIM118  # it is no mapping
    if len(dtypes) != 1:
        came = ", ".join(sorted(map(str, dtypes)))
        raise OctopusError(f"{folder / WEIGHTS}: expected weights of one dtype, came {came}")
    (dtype,) = dtypes
    if (folder / "tokenizer_config.json").is_file():
        return load_model(str(folder), dtype=dtype, device="cpu")
    model, codec = load_policy(folder, dtype=dtype, device="cpu")
    return model, codec.transformers()


def _of_save(folder: Path) -> tuple[PreTrainedModel, Any]:
    """The policy that the save's run began with, with the weights of the save, and its tokenizer."""
    save, described = saves.check(folder), folder.parent / "config.toml"
    if not described.is_file():
        raise ConfigError(f"{folder} is a save, but {described} is missing, which names the policy that it changes")
    config = load_job(described)
    model, talk = load_speaker(config.model)
    if config.adapter is not None:
        add_adapter(model, config.adapter)
    restore_model(model, read_tensors(save.path, "model", save.files), source=str(save.path))
    if config.adapter is not None:
        merged = plain_state(model)
        model, _ = load_speaker(config.model)
        with torch.no_grad():
            for name, parameter in model.named_parameters():
                parameter.copy_(merged[name])
    return model, talk.transformers()
