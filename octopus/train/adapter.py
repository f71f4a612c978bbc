"""Low-rank adapters by the library peft, put into the model itself, so that whoever runs it runs them.

The packed pass, the paged pass and rollouts share the model's modules; there is nothing to hand over after a step.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

import torch
from torch import Tensor
from transformers import PreTrainedModel

from octopus.core.errors import ConfigError
from octopus.train.config import AdapterConfig

if TYPE_CHECKING:
    from peft.tuners.lora import Linear

ADAPTER = "default"


def add_adapter(model: PreTrainedModel, config: AdapterConfig) -> None:
    """Puts an adapter beside each chosen linear layer of a model, in place, and freezes the model's own weights.

    The adapter adds nothing at first. Its weights are in float32 at least and drawn from torch's generator.

    Raises:
        ConfigError: peft is not installed, or no linear layer has a name that was asked for.
    """
    try:
        from peft import LoraConfig, inject_adapter_in_model
    except ImportError as error:
        raise ConfigError("adapters need the library peft; install it with pip install 'octopus-kv[lora]'") from error
    known = _linear_names(model)
    unknown = sorted(set(config.targets) - known)
    if unknown:
        raise ConfigError(
            f"adapter.targets: expected names of linear layers ({', '.join(sorted(known))}), came {', '.join(unknown)}"
        )
    targets = sorted(config.targets or known)
    inject_adapter_in_model(
        LoraConfig(r=config.rank, lora_alpha=config.alpha, target_modules=targets), model, ADAPTER
    )
    for _, layer in _adapted(model):
        for part in (layer.lora_A, layer.lora_B):
            part.to(torch.promote_types(model.dtype, torch.float32))


def has_adapter(model: torch.nn.Module) -> bool:
    """Whether `add_adapter` was called on it."""
    return any(".lora_A." in name for name, _ in model.named_parameters())


@contextmanager
def adapter_off(model: torch.nn.Module) -> Iterator[None]:
    """Within it the model is what it was without its adapter. Not for passes with gradients."""
    layers = [layer for _, layer in _adapted(model)]
    for layer in layers:
        layer.enable_adapters(False)
    try:
        yield
    finally:
        for layer in layers:
            layer.enable_adapters(True)


def plain_state(model: torch.nn.Module) -> dict[str, Tensor]:
    """The weights of the plain model, an adapter merged into them, under the plain model's names; tied ones once.

    The model is left as it is. Merged weights are rounded to the dtype of the model's own.
    """
    state = {
        name.replace(".base_layer.", "."): parameter.detach()
        for name, parameter in model.named_parameters()
        if ".lora_" not in name
    }
    if has_adapter(model):
        for name, layer in _adapted(model):
            base = state[f"{name}.weight"]
            state[f"{name}.weight"] = (base + layer.get_delta_weight(ADAPTER).detach()).to(base.dtype)
    return state


def _linear_names(model: PreTrainedModel) -> set[str]:
    """Last parts of the names of all linear layers but the head."""
    head = model.get_output_embeddings()
    return {
        name.rpartition(".")[2]
        for name, module in model.named_modules()
        if isinstance(module, torch.nn.Linear) and module is not head
    }


def _adapted(model: torch.nn.Module) -> Iterator[tuple[str, Linear]]:
    from peft.tuners.lora import Linear

    for name, module in model.named_modules():
        if isinstance(module, Linear):
            yield name, module
