"""The library's own forward with every detour over float32 made in float64, so that it can be compared exactly.

Norms, rotations, gates and scans of the library are computed in float32 whatever the weights, so its float64 model is
right to about 1e-6 only. Nothing of its code is replaced here; the word float32 means float64 while the mode lasts.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch.overrides import TorchFunctionMode


class ExactLibrary(TorchFunctionMode):
    """While it lasts, whoever asks torch for float32 gets float64."""

    def __torch_function__(self, func: Callable, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if func is torch.Tensor.float:
            func = torch.Tensor.double
        return func(*map(_widened, args), **{name: _widened(value) for name, value in (kwargs or {}).items()})


def _widened(value: Any) -> Any:
    return torch.float64 if value is torch.float32 else value
