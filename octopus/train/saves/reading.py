"""Going on from a save."""

from __future__ import annotations

import json

import torch

from octopus.core.errors import ConfigError
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
        OctopusError: It is of another model or optimizer.
    """
    if save.run != run:
        raise ConfigError(
            f"{save.path} is a save of another configuration; resume with its own, or choose another run.folder"
        )
    source = str(save.path)
    restore_model(model, read_tensors(save.path, "model", save.files), source=source)
    rest = json.loads((save.path / "optimizer.json").read_text())
    tensors = read_tensors(save.path, "optimizer", save.files)
    restore_optimizer(model, optimizer, tensors, rest, source=source)
    ranks = present()
    if save.world_size == ranks.size:
        restore_generators(json.loads((save.path / generators_file(ranks.rank)).read_text()))
    return save.step
