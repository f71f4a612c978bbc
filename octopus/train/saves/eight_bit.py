"""Moments that are kept in 8 bits, as plain tensors: what torchao's own tensor type is made of."""

from __future__ import annotations

from collections.abc import Mapping

import torch

PARTS = ("codes", "scale", "qmap")
"""A byte for each value, a scale for each block of them, and what a byte means."""
SIGNED = "exp_avg"
"""The moment that may be negative."""


def parts_of(key: str, value: torch.Tensor) -> dict[str, torch.Tensor]:
    """`exp_avg.codes` and so on; a plain tensor is its own only part."""
    if not hasattr(value, PARTS[0]):
        return {key: value}
    return {f"{key}.{part}": getattr(value, part) for part in PARTS}


def joined(key: str, parts: Mapping[str, torch.Tensor], parameter: torch.Tensor) -> torch.Tensor:
    """The moment of a parameter from its parts, beside it."""
    from torchao.optim.subclass_8bit import OptimState8bit  # An extra.

    placed = [parts[part].to(parameter.device) for part in PARTS]
    made: torch.Tensor = OptimState8bit(*placed, signed=key == SIGNED, dtype=parameter.dtype)
    return made
