"""How far two right computations may lie apart: measured, never typed.

The noise of a dtype is what a trusted rerun in it loses against an exact one in float64, or what it moves when every
weight goes to a neighbouring number of the dtype, up or down at random, whichever is more. One rerun alone may be
lucky: rounding errors are draws, and the next right way to compute the same draws again (Vignes, A stochastic
arithmetic for reliable scientific computation, 1993). In a tiny recurrent model such draws lie ten times apart.

How many times that noise is too much is said in `margins`.

Letters: N rows, V vocabulary.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field

import torch
from torch import Tensor, nn

SHAKES = 4
"""Draws of the noise besides the rerun's own."""


@dataclass(frozen=True, kw_only=True, eq=False)
class Measured:
    """What one way of computing a row gives.

    Attributes:
        outputs_NV: Logits.
        gradients: Of one loss, by name of the parameter.
    """

    outputs_NV: Tensor
    gradients: Mapping[str, Tensor]


@dataclass(frozen=True, kw_only=True, slots=True)
class Distance:
    """Relative L2 errors: of the outputs, and of all gradients taken as one vector."""

    outputs: float
    gradients: float

    def over(self, noise: Distance) -> float:
        """How many times the noise this is, in outputs or gradients, whichever is more."""
        return max(_ratio(self.outputs, noise.outputs), _ratio(self.gradients, noise.gradients))


def measure(model: nn.Module, outputs_NV: Tensor, loss: Tensor) -> Measured:
    """The outputs, and the gradients of a scalar loss of them; parameters that it does not reach have zeros."""
    names, parameters = zip(*model.named_parameters(), strict=True)
    found = torch.autograd.grad(loss, parameters, allow_unused=True, materialize_grads=True)
    return Measured(outputs_NV=outputs_NV.detach(), gradients=dict(zip(names, found, strict=True)))


def distance(found: Measured, expected: Measured) -> Distance:
    """How far `found` lies from `expected`, in float64.

    Raises:
        ValueError: the two have other parameters.
    """
    if found.gradients.keys() != expected.gradients.keys():
        raise ValueError("the two were measured on models with other parameters")
    return Distance(
        outputs=relative_l2(found.outputs_NV, expected.outputs_NV),
        gradients=relative_l2(
            _flat(found.gradients, expected.gradients), _flat(expected.gradients, expected.gradients)
        ),
    )


def _flat(gradients: Mapping[str, Tensor], names: Iterable[str]) -> Tensor:
    return torch.cat([torch.zeros(0), *(gradients[name].flatten().double().cpu() for name in names)])


def relative_l2(found: Tensor, expected: Tensor) -> float:
    """L2 norm of the difference over that of `expected`; infinite where something is not finite or was to be zero."""
    found, expected = found.double().cpu(), expected.double().cpu()
    error, size = float((found - expected).norm()), float(expected.norm())
    return 0.0 if error == 0.0 else _ratio(error, size)


@dataclass(frozen=True, kw_only=True, eq=False)
class Yardstick:
    """A row computed in ways that are trusted. Each dtype is computed once.

    Attributes:
        rerun: Computes the row in a dtype: each path alone, or token by token; with a seed, from weights that are
            shaken by it (see `shake`).
        exact: Computes it in float64 throughout; None if `rerun` does that for float64.
    """

    rerun: Callable[[torch.dtype, int | None], Measured]
    exact: Callable[[], Measured] | None = None
    _kept: dict[torch.dtype | None, Measured] = field(default_factory=dict, repr=False)
    _noise: dict[torch.dtype, Distance] = field(default_factory=dict, repr=False)

    def expected(self, dtype: torch.dtype) -> Measured:
        """The row in a dtype."""
        if dtype not in self._kept:
            self._kept[dtype] = self.rerun(dtype, None)
        return self._kept[dtype]

    def noise(self, dtype: torch.dtype) -> Distance:
        """The noise of a dtype: of outputs and of gradients the largest draw."""
        if dtype not in self._noise:
            right = self.expected(dtype)
            draws = [distance(self.rerun(dtype, seed), right) for seed in range(SHAKES)]
            draws.append(distance(right, self._exact()))
            self._noise[dtype] = Distance(
                outputs=max(draw.outputs for draw in draws), gradients=max(draw.gradients for draw in draws)
            )
        return self._noise[dtype]

    def _exact(self) -> Measured:
        if self.exact is None:
            return self.expected(torch.float64)
        if None not in self._kept:
            self._kept[None] = self.exact()
        return self._kept[None]


def shake(model: nn.Module, seed: int) -> None:
    """Moves every weight to a neighbouring number of its dtype, up or down at random, in place."""
    draw = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for weight in model.parameters():
            up = torch.randint(0, 2, weight.shape, generator=draw).to(weight.device, torch.bool)
            to = torch.where(up, torch.inf, -torch.inf).to(weight.dtype)
            weight.copy_(torch.nextafter(weight, to))


def _ratio(error: float, size: float) -> float:
    """`error / size`, infinite rather than undefined."""
    return error / size if error < float("inf") and size > 0 else float("inf")
