"""A model made ready for training, before an engine or a backbone takes it over."""

from __future__ import annotations

from transformers import PreTrainedModel

from octopus.models.recomputing import recompute_layers
from octopus.train.adapter import add_adapter
from octopus.train.config import AdapterConfig, StepConfig


def prepare(model: PreTrainedModel, *, adapter: AdapterConfig | None, step: StepConfig) -> None:
    """Adds the adapter, and activation checkpointing where it is asked for. In place; before the model is sharded."""
    if adapter is not None:
        add_adapter(model, adapter)
    if step.recompute:
        recompute_layers(model)
