"""Rotary position embedding with fixed frequencies, on all or only the first dimensions of a head.

Letters: X any leading dimensions, T rows, D head dimension, R half of the rotary dimensions.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor


@dataclass(frozen=True, kw_only=True, eq=False)
class Rope:
    """Rotation of dimension pairs `(i, i + R)` by `position * inverse_frequencies_R[i]`.

    The rotation is a pure one: no attention factor is multiplied in, so rotating by `p` and then by `-p` gives
    the input back, and moving a query by `-s` scores like moving the key by `+s`.

    Attributes:
        inverse_frequencies_R: float64, radians per position. `2 * R` is the number of rotated dimensions.
    """

    inverse_frequencies_R: Tensor

    def __post_init__(self) -> None:
        frequencies = self.inverse_frequencies_R
        if frequencies.ndim != 1 or frequencies.dtype != torch.float64:
            raise ValueError(
                "inverse_frequencies_R must be a float64 vector, "
                f"not {frequencies.dtype} of shape {tuple(frequencies.shape)}"
            )

    @property
    def rotary_dim(self) -> int:
        """Number of leading head dimensions that are rotated; the others pass through."""
        return 2 * self.inverse_frequencies_R.shape[0]

    def rotate(self, x_XTD: Tensor, positions_T: Tensor) -> Tensor:
        """Rotates each row to its position (Su et al., arXiv 2104.09864, half-split layout).

        Args:
            x_XTD: any leading dimensions, then T rows of D >= rotary_dim.
            positions_T: integer position of each row; may be negative, which undoes the rotation. Leading dimensions
                are broadcast against those of `x_XTD`.

        Returns:
            The rotated rows in `promote(x.dtype, float32)`, unrounded: who wants less rounds once, at the end.

        Raises:
            ValueError: the head is smaller than the rotary dimensions.
        """
        if x_XTD.shape[-1] < self.rotary_dim:
            raise ValueError(f"head dimension {x_XTD.shape[-1]} is below rotary dimension {self.rotary_dim}")
        x_XTD = x_XTD.to(torch.promote_types(x_XTD.dtype, torch.float32))
        # Float32 angles are off by 1e-2 rad at position 200,000; a float64 product costs nothing next to attention.
        angles_TR = positions_T.double()[..., None] * self.inverse_frequencies_R.to(x_XTD.device)
        cos_TR, sin_TR = angles_TR.cos().to(x_XTD.dtype), angles_TR.sin().to(x_XTD.dtype)
        half = self.rotary_dim // 2
        first, second, rest = x_XTD.split((half, half, x_XTD.shape[-1] - 2 * half), dim=-1)
        return torch.cat((first * cos_TR - second * sin_TR, second * cos_TR + first * sin_TR, rest), dim=-1)


def apply_rope(rope: Rope | None, x_XTD: Tensor, positions_T: Tensor) -> Tensor:
    """Rotates rows to their positions; with `rope=None` (a model without positions) only promotes the dtype."""
    if rope is None:
        return x_XTD.to(torch.promote_types(x_XTD.dtype, torch.float32))
    return rope.rotate(x_XTD, positions_T)
