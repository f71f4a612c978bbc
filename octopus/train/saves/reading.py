"""Going on from a save."""

from __future__ import annotations

import json
from typing import Any

import torch

from octopus.core.errors import ConfigError, DamagedSave, OctopusError
from octopus.train.parallel.ranks import present
from octopus.train.saves.generators import restore_generators
from octopus.train.saves.manifest import Save
from octopus.train.saves.model import restore_model
from octopus.train.saves.optimizer import restore_optimizer
from octopus.train.saves.tensors import read_tensors
from octopus.train.saves.writing import generators_file


def load(save: Save, *, model: torch.nn.Module, optimizer: torch.optim.Optimizer, run: str) -> int:
    """Restores a save into `model`, `optimizer` and the random generators, and returns its step.

    On as many ranks as made it, the next step then gives the same bits as if the run had never stopped. On another
    number of ranks model and optimizer are the same, and the generators stay what they are.

    Raises:
        ConfigError: It is of a run with another configuration.
        OctopusError: It is of another model or optimizer, or lacks a part.
    """
    if save.run != run:
        raise ConfigError(
            f"{save.path} is a save of another configuration; resume with its own, or choose another run.folder"
        )
    source = str(save.path)
    restore_model(model, read_tensors(save.path, "model", save.files), source=source)
    rest = _table(save, "optimizer.json")
    tensors = read_tensors(save.path, "optimizer", save.files)
    try:
        restore_optimizer(model, optimizer, tensors, rest, source=source)
    except (LookupError, TypeError, ValueError, AttributeError) as error:
        raise OctopusError(f"{save.path / 'optimizer.json'} is not what a save has there: {error!r}") from error
    ranks = present()
    if save.world_size == ranks.size:
        name = generators_file(ranks.rank)
        try:
            restore_generators(_table(save, name))
        except (LookupError, TypeError, ValueError, RuntimeError) as error:
            raise OctopusError(
                f"{save.path / name} holds no generators of this version of torch and numpy: {error}"
            ) from error
    return save.step


def _table(save: Save, name: str) -> dict[str, Any]:
    """What a JSON file of the save says. Only files that the manifest vouches for are read."""
    if name not in save.files:
        raise DamagedSave(f"{save.path} has no {name} in its manifest")
    try:
        table = json.loads((save.path / name).read_text())
    except (ValueError, RecursionError) as error:
        raise DamagedSave(f"{save.path / name} cannot be read: {error}") from error
    if not isinstance(table, dict):
        raise DamagedSave(f"{save.path / name}: expected an object, came {type(table).__name__}")
    return table
