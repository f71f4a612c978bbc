"""How far gradients are from those that are wanted."""

from __future__ import annotations

from collections.abc import Mapping

from torch import Tensor


def worst(found: Mapping[str, Tensor], wanted: Mapping[str, Tensor]) -> tuple[str, float]:
    """The weight whose gradient is farthest off, and the norm of the difference beside the norm."""
    errors = {
        name: ((found[name].to(exact.device).double() - exact.double()).norm() / exact.double().norm()).item()
        for name, exact in wanted.items()
    }
    return max(errors.items(), key=lambda pair: pair[1])
