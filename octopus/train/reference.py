"""The policy that training should not stray from: the one that the run began with.

Letters: N loss terms.
"""

from __future__ import annotations

import copy
from typing import Protocol

import numpy as np
import torch

from octopus.models.backbone import Backbone
from octopus.train.adapter import adapter_off, has_adapter
from octopus.train.config import StepConfig
from octopus.train.packing import Pack
from octopus.train.passes import pack_log_probabilities


class Reference(Protocol):
    """A policy that scores what another one sampled."""

    def score(self, pack: Pack, *, step: StepConfig) -> np.ndarray:
        """Log-probability of each loss term, float64 [N], natural log."""


class FrozenCopy:
    """A copy of a model with the weights that it has now. It takes as much memory as the model."""

    def __init__(self, backbone: Backbone) -> None:
        self._backbone = Backbone(copy.deepcopy(backbone.model).requires_grad_(False))

    def score(self, pack: Pack, *, step: StepConfig) -> np.ndarray:
        """See `Reference`."""
        return score(self._backbone, pack, step=step)


class AdapterOff:
    """A model without its adapter. It takes no memory."""

    def __init__(self, backbone: Backbone) -> None:
        self._backbone = backbone

    def score(self, pack: Pack, *, step: StepConfig) -> np.ndarray:
        """See `Reference`."""
        with adapter_off(self._backbone.model):
            return score(self._backbone, pack, step=step)


def new_reference(backbone: Backbone) -> Reference:
    """The policy as it is now, where it has an adapter as it would be without. Make it before a save is loaded."""
    return AdapterOff(backbone) if has_adapter(backbone.model) else FrozenCopy(backbone)


@torch.no_grad()
def score(backbone: Backbone, pack: Pack, *, step: StepConfig) -> np.ndarray:
    """Log-probability of each loss term under the weights as they are, float64 [N], natural log."""
    return pack_log_probabilities(backbone, pack, step=step).double().cpu().numpy()
