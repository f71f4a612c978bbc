"""What several layers of the executor are made of: linear maps, norms, activations. One token at a time."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any

import torch
from torch import Tensor
from torch.nn.functional import gelu, relu, silu

GEMMA, QWEN35, QWEN3_NEXT = "gemma3_text", "qwen3_5_text", "qwen3_next"
GRANITE, NEMOTRON = "granitemoehybrid", "nemotron_h"
ACTIVATIONS: Mapping[str, Callable[[Tensor], Tensor]] = {
    "silu": silu,
    "gelu_pytorch_tanh": partial(gelu, approximate="tanh"),
    "relu2": lambda x: relu(x).square(),
}


class Projection:
    """Linear maps of one input, as one product."""

    def __init__(self, weights: Sequence[Tensor], biases: Sequence[Tensor] = ()) -> None:
        self.weight = torch.cat(tuple(weights))
        self.bias = torch.cat(tuple(biases)) if biases else None
        self.sizes = [len(weight) for weight in weights]

    @classmethod
    def of(cls, *modules: Any) -> Projection:
        """The maps of linear modules, all of them with a bias or none."""
        biases = [module.bias for module in modules if module.bias is not None]
        return cls([module.weight for module in modules], biases)

    def __call__(self, x: Tensor) -> tuple[Tensor, ...]:
        """The result of each map."""
        out = self.weight.mv(x)
        return torch.split(out if self.bias is None else out + self.bias, self.sizes)


class Norm:
    """RMSNorm; Qwen3.5, Qwen3-Next and Gemma keep its weights as differences from 1."""

    def __init__(self, module: Any, config: Any) -> None:
        from_one = config.model_type in (QWEN35, QWEN3_NEXT, GEMMA)
        self.weight: Tensor = 1 + module.weight if from_one else module.weight
        self.epsilon = norm_epsilon(config)

    def __call__(self, x: Tensor) -> Tensor:
        """The vector, normalised and weighted."""
        return unit_mean_square(x, self.epsilon) * self.weight


def norm_epsilon(config: Any) -> float:
    """What a family adds to mean squares."""
    return float(config.layer_norm_epsilon if config.model_type == NEMOTRON else config.rms_norm_eps)


def unchanged(x: Tensor) -> Tensor:
    """The same."""
    return x


def unit_mean_square(x: Tensor, epsilon: float) -> Tensor:
    """The last dimension divided by its root mean square."""
    return x * (x.square().mean(dim=-1, keepdim=True) + epsilon).rsqrt()
