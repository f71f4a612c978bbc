"""Rows rotated, summed and joined: one kernel on a GPU, plain torch elsewhere.

Letters: H heads, N rows, L keys, T rows of the pack, D head dimension, R half of the rotary dimensions.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import reduce

import numpy as np
import torch
from torch import Tensor

from octopus.attention.merge import merge
from octopus.attention.rope import Rope


@dataclass(frozen=True, kw_only=True, eq=False)
class Angles:
    """Cosines and sines of rows' angles, made in float64 and rounded once; no columns for a model without positions.

    Attributes:
        cos_NR, sin_NR: contiguous, in the compute dtype.
    """

    cos_NR: Tensor
    sin_NR: Tensor

    @classmethod
    def of(cls, rope: Rope | None, positions_N: np.ndarray, device: torch.device, dtype: torch.dtype) -> Angles:
        """The angles of rows at given positions."""
        at_N1 = torch.from_numpy(positions_N).to(device, torch.float64)[:, None]
        pace_R = at_N1.new_zeros(0) if rope is None else rope.inverse_frequencies_R.to(device)
        angle_NR = at_N1 * pace_R
        return cls(cos_NR=angle_NR.cos().to(dtype), sin_NR=angle_NR.sin().to(dtype))

    def part(self, start: int, stop: int) -> Angles:
        """Those of rows `[start, stop)`."""
        return Angles(cos_NR=self.cos_NR[start:stop], sin_NR=self.sin_NR[start:stop])


def rotated(x_HND: Tensor, angles: Angles, *, rows_N: Tensor | None = None) -> Tensor:
    """Rows rotated to their angles, in their dtype; with `rows_N`, row n of the result is `x_HND[:, rows_N[n]]`.

    Where nothing is rotated or picked, `x_HND` itself.
    """
    if rows_N is None and not angles.cos_NR.shape[1]:
        return x_HND
    heads, _, dim = x_HND.shape
    out_HND = x_HND.new_empty((heads, len(angles.cos_NR), dim))
    return sum_rotated([x_HND], angles, out_HND=out_HND, rows_N=rows_N)


def sum_rotated(
    parts: Sequence[Tensor], angles: Angles, *, out_HND: Tensor, rows_N: Tensor | None = None, back: bool = False
) -> Tensor:
    """Writes the sum of parts `[H, N, D]`, rotated to (or `back` from) the rows' angles, to `out_HND`; returns it.

    With `rows_N` there is one part, `[H, any, D]`, and row n of the result is its row `rows_N[n]`. The result may also
    be `[G, S, N, D]` with G * S heads.
    """
    if out_HND.is_cuda:
        from octopus.attention.libraries import kernels

        rest = list(parts)
        while len(rest) > kernels.MOST_PARTS:  # Seldom: a row of so many calls.
            rest = [rest[0].float() + rest[1], *rest[2:]]
        out_GSND = out_HND if out_HND.dim() == 4 else out_HND[None]
        kernels.rotate(rest, out_GSND, angles.cos_NR, angles.sin_NR, rows_N, -1 if back else 1)
        return out_HND
    x_HND = reduce(torch.add, (x.to(angles.cos_NR.dtype) for x in parts))
    x_HND = x_HND if rows_N is None else x_HND.index_select(1, rows_N)
    half = angles.cos_NR.shape[1]
    sin_NR = -angles.sin_NR if back else angles.sin_NR
    first, second, still = x_HND.split((half, half, x_HND.shape[-1] - 2 * half), dim=-1)
    turned = first * angles.cos_NR - second * sin_NR, second * angles.cos_NR + first * sin_NR
    return out_HND.copy_(torch.cat((*turned, still), dim=-1).view(out_HND.shape))


def joined(parts: Sequence[tuple[Tensor, Tensor]], *, out_HND: Tensor, lse_HN: Tensor) -> None:
    """Writes attention over the union of the keys of parts `(out [H, N, D], lse [H, N])`; without any, 0 and -inf."""
    if not parts:
        out_HND.zero_()
        lse_HN.fill_(-torch.inf)
        return
    if out_HND.is_cuda:
        from octopus.attention.libraries import kernels

        rest = list(parts)
        while len(rest) > kernels.MOST_PARTS:
            rest = [merge(rest[0][0].float(), rest[0][1], rest[1][0].float(), rest[1][1]), *rest[2:]]
        kernels.join(rest, out_HND, lse_HN)
        return
    nothing = torch.zeros_like(out_HND, dtype=lse_HN.dtype), torch.full_like(lse_HN, -torch.inf)
    out, lse = reduce(lambda a, b: merge(*a, *b), ((out.to(lse.dtype), lse) for out, lse in parts), nothing)
    out_HND.copy_(out)
    lse_HN.copy_(lse)
