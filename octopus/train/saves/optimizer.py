"""The state of an optimizer by the names of the parameters, so that it does not hang on their order.

Tensors are named `exp_avg/model.embed_tokens.weight`, those of 8-bit moments `exp_avg.codes/...`. The rest is JSON: for
each group its names and options, and the numbers that a parameter's state has besides.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping
from typing import Any

import torch

from octopus.core.errors import OctopusError
from octopus.train.saves.eight_bit import joined, parts_of
from octopus.train.saves.tensors import like

Tensors = dict[str, torch.Tensor]


def optimizer_state(model: torch.nn.Module, optimizer: torch.optim.Optimizer) -> tuple[Tensors, dict[str, Any]]:
    """The tensors, and what JSON holds."""
    names = {parameter: name for name, parameter in model.named_parameters()}
    tensors: Tensors = {}
    numbers: dict[str, dict[str, Any]] = {}
    groups = []
    for group in optimizer.param_groups:
        groups.append({"names": [names[one] for one in group["params"]], "options": _options(group)})
        for parameter in group["params"]:
            for key, value in optimizer.state.get(parameter, {}).items():
                if isinstance(value, torch.Tensor):
                    parts = parts_of(key, value)
                    tensors |= {f"{part}/{names[parameter]}": tensor for part, tensor in parts.items()}
                else:
                    numbers.setdefault(names[parameter], {})[key] = value
    return tensors, {"groups": groups, "numbers": numbers}


def restore_optimizer(
    model: torch.nn.Module,
    optimizer: torch.optim.Optimizer,
    tensors: Iterable[tuple[str, torch.Tensor]],
    rest: dict[str, Any],
    *,
    source: str,
) -> None:
    """Makes the optimizer what it was when it was saved.

    Raises:
        OctopusError: Its groups have other parameters or options, or it holds states of others.
    """
    parameters = dict(model.named_parameters())
    names = {parameter: name for name, parameter in parameters.items()}
    own = [(sorted(names[one] for one in group["params"]), _options(group).keys()) for group in optimizer.param_groups]
    saved_groups = [(sorted(group["names"]), group["options"].keys()) for group in rest["groups"]]
    if [one for one, _ in own] != [one for one, _ in saved_groups]:
        raise OctopusError(f"{source}: the groups of the optimizer have other parameters than those that were saved")
    if not all(saved <= present for (_, present), (_, saved) in zip(own, saved_groups, strict=True)):
        raise OctopusError(f"{source}: the optimizer lacks options that were saved; resume with the same torch")
    options: dict[torch.Tensor, dict[str, Any]] = {}
    for group, saved in zip(optimizer.param_groups, rest["groups"], strict=True):
        group.update({key: _restored(group.get(key), value) for key, value in saved["options"].items()})
        options |= dict.fromkeys(group["params"], group)
    optimizer.state.clear()
    for name, numbers in rest["numbers"].items():
        optimizer.state[_held(parameters, name, options, source=source)] = dict(numbers)
    split: dict[tuple[torch.Tensor, str], Tensors] = defaultdict(dict)
    for full_name, value in tensors:
        full_key, _, name = full_name.partition("/")
        parameter = _held(parameters, name, options, source=source)
        key, _, part = full_key.partition(".")
        if part:
            split[parameter, key][part] = value
        else:
            optimizer.state[parameter] |= {key: _placed(value, parameter, options[parameter])}
    for (parameter, key), parts in split.items():
        optimizer.state[parameter] |= {key: joined(key, parts, parameter)}


def _held(
    parameters: Mapping[str, torch.Tensor], name: str, options: Mapping[torch.Tensor, object], *, source: str
) -> torch.Tensor:
    """The parameter of that name, which the optimizer holds."""
    parameter = parameters.get(name)
    if parameter is None or parameter not in options:
        raise OctopusError(f"{source} holds a state of {name!r}, which the optimizer does not have")
    return parameter


def _options(group: dict[str, Any]) -> dict[str, Any]:
    """Numbers, also those that the optimizer keeps as a tensor because it is compiled."""
    return {
        key: value.item() if isinstance(value, torch.Tensor) else value
        for key, value in group.items()
        if key not in {"params", "param_names"}
    }


def _restored(present: object, saved: object) -> object:
    """JSON knows neither tuples nor tensors."""
    if isinstance(present, torch.Tensor):
        return torch.full_like(present, saved)  # type: ignore[arg-type]  # what `_options` made of it
    return tuple(saved) if isinstance(present, tuple) and isinstance(saved, list) else saved


def _placed(value: torch.Tensor, parameter: torch.Tensor, group: dict[str, Any]) -> torch.Tensor:
    """Where the optimizer keeps it: beside its parameter, but a count of steps on the CPU unless kernels read it."""
    if value.shape == parameter.shape:
        return like(value, parameter)
    on_device = group.get("capturable") or group.get("fused")
    return value.to(parameter.device) if on_device else value
