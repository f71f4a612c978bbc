"""Depthwise causal convolution along a path: what lies before a column is its ancestor, not its neighbour in the row.

Letters: S source columns, T outputs, C channels, W kernel size.
"""

from __future__ import annotations

from collections.abc import Iterable
from functools import reduce

import torch
from torch import Tensor
from torch.nn.functional import silu


def short_convolution(
    columns_SC: Tensor, taps_WT: Tensor, weight_CW: Tensor, bias_C: Tensor | None = None
) -> Tensor:
    """SiLU of a depthwise convolution.

    Args:
        columns_SC: the columns that outputs are made of.
        taps_WT: `[d, t]` is the column that lies d steps before output t on its path, -1 for a zero column.
        weight_CW: the library's kernel: its last entry is for the output's own column.
        bias_C: added before the SiLU.

    Returns:
        Outputs [T, C] in `promote(dtype, float32)`.
    """
    return convolved((gather_columns(columns_SC, taps_T) for taps_T in taps_WT), weight_CW, bias_C)


def convolved(shifted: Iterable[Tensor], weight_CW: Tensor, bias_C: Tensor | None = None) -> Tensor:
    """The same of columns [T, C] that are gathered already: each output's own, those a step before, and so on."""
    # The products promote; the gathered columns, which autograd keeps, stay in their own dtype.
    weights = weight_CW.to(torch.promote_types(weight_CW.dtype, torch.float32)).unbind(1)
    products = (w_C * columns_TC for w_C, columns_TC in zip(reversed(weights), shifted, strict=True))
    out_TC = reduce(torch.add, products)
    return silu(out_TC if bias_C is None else out_TC + bias_C)


def gather_columns(columns_SC: Tensor, index_T: Tensor) -> Tensor:
    """The columns at `index_T`; zeros, selected and not multiplied, where the index is -1."""
    present_T1 = (index_T >= 0)[:, None]
    return torch.where(present_T1, columns_SC[index_T.clamp_min(0)], columns_SC.new_zeros(()))
