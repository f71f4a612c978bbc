"""Who computes a model's layers, by name; chosen openly and never replaced."""

from __future__ import annotations

import re
from importlib.util import find_spec

import torch

from octopus.core.errors import BackendUnavailable
from octopus.models.layers.layer import Layers
from octopus.models.layers.plain import PlainLayers

PLAIN, FLA = "plain", "fla"
LAYERS = (PLAIN, FLA)


def default_layers(device: torch.device, dtype: torch.dtype) -> str:
    """`fla` wherever flash-linear-attention runs: bfloat16 and float16 on a GPU. Everywhere else `plain`."""
    return PLAIN if unavailable(FLA, device, dtype) else FLA


def layers_named(name: str, device: torch.device, dtype: torch.dtype) -> Layers:
    """The layers of that name.

    Raises:
        BackendUnavailable: There are none of that name, or not for this device and dtype; the message says why.
    """
    reason = unavailable(name, device, dtype)
    if reason:
        raise BackendUnavailable(
            f"layers {name!r} are not available for {dtype} on {device} ({reason}); there are {', '.join(LAYERS)}, "
            f"of which {PLAIN} runs everywhere"
        )
    if name == PLAIN:
        return PlainLayers()
    from octopus.models.layers.fla import FlaLayers, Kernels  # The library is an extra.

    return FlaLayers(Kernels.load())


def unavailable(name: str, device: torch.device, dtype: torch.dtype) -> str | None:
    """Why layers of that name cannot be had here, None if they can."""
    if name == PLAIN:
        return None
    if name != FLA:
        return "there are none of that name"
    if device.type != "cuda" or dtype not in (torch.bfloat16, torch.float16):
        return "they are for bfloat16 and float16 on a GPU"
    if find_spec("fla") is None:
        return "the package flash-linear-attention is missing; install octopus-kv[fla]"
    if _is_wrong_on_hopper(device) and find_spec("tilelang") is None:
        return "on Hopper with this Triton its gradients need the package tilelang; install octopus-kv[fla]"
    return None


def _is_wrong_on_hopper(device: torch.device) -> bool:
    """Triton 3.4 to 3.7.0 miscompiles the library's gated gradient for Hopper (its issue 640), so it refuses there."""
    import triton  # It comes with PyTorch for GPUs.

    version = tuple(map(int, re.findall(r"\d+", triton.__version__)[:3]))
    return torch.cuda.get_device_capability(device)[0] == 9 and (3, 4) <= version < (3, 7, 1)
