"""Depthwise causal convolution along a path: what lies before a column is its ancestor, not its neighbour in the row.

Letters: S source columns, T outputs, C channels, W kernel size.
"""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn.functional import silu


def short_convolution(columns_SC: Tensor, taps_WT: Tensor, weight_CW: Tensor) -> Tensor:
    """SiLU of a depthwise convolution without bias.

    Args:
        columns_SC: the columns that outputs are made of.
        taps_WT: `[d, t]` is the column that lies d steps before output t on its path, -1 for a zero column.
        weight_CW: the library's kernel: its last entry is for the output's own column.

    Returns:
        Outputs [T, C] in `promote(dtype, float32)`.
    """
    # The products promote; the gathered columns, which autograd keeps, stay in their own dtype.
    weight_WC = weight_CW.to(torch.promote_types(weight_CW.dtype, torch.float32)).mT.flip(0)
    out_TC = weight_WC[0] * gather_columns(columns_SC, taps_WT[0])
    for w_C, taps_T in zip(weight_WC[1:], taps_WT[1:], strict=True):
        out_TC = out_TC + w_C * gather_columns(columns_SC, taps_T)
    return silu(out_TC)


def gather_columns(columns_SC: Tensor, index_T: Tensor) -> Tensor:
    """The columns at `index_T`; zeros, selected and not multiplied, where the index is -1."""
    present_T1 = (index_T >= 0)[:, None]
    return torch.where(present_T1, columns_SC[index_T.clamp_min(0)], columns_SC.new_zeros(()))
