"""What training changes of a model, by name."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

import torch

from octopus.core.errors import OctopusError
from octopus.train.saves.tensors import like


def changing(model: torch.nn.Module) -> dict[str, torch.Tensor]:
    """Parameters that require a gradient, tied ones once, and the buffers that belong to the model's state.

    What is frozen comes from where the model was loaded from, which the configuration names.
    """
    parameters = {name: value for name, value in model.named_parameters() if value.requires_grad}
    state = model.state_dict().keys()
    return parameters | {name: value for name, value in model.named_buffers() if name in state}


@torch.no_grad()
def restore_model(model: torch.nn.Module, tensors: Iterable[tuple[str, torch.Tensor]], *, source: str) -> None:
    """Copies saved values into the model, bit by bit.

    Raises:
        OctopusError: The names, shapes or types are not the model's. What was copied before stays copied.
    """
    left = changing(model)
    for name, value in tensors:
        target = left.pop(name, None)
        if target is None or (value.shape, value.dtype) != (target.shape, target.dtype):
            raise OctopusError(
                f"{source} is of another model: it has {name} as {_kind(value)}, the model {_kind(target)}"
            )
        target.copy_(like(value, target))
    refuse_missing(left, source=source)


def refuse_missing(left: Mapping[str, object], *, source: str) -> None:
    """Raises if the save lacks something that is needed."""
    if left:
        raise OctopusError(f"{source} is of another model: it lacks {', '.join(sorted(left))}")


def _kind(tensor: torch.Tensor | None) -> str:
    return "does not" if tensor is None else f"{tuple(tensor.shape)} of {tensor.dtype}"
