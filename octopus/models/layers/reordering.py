"""Rows laid in another order. The gradient is laid back by the inverse, so nothing is added up.

Letters: T rows.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor


def reordered(x_TX: Tensor, order_T: Tensor | None, inverse_T: Tensor | None) -> Tensor:
    """`x_TX[order_T]`; itself if there is no order. `order_T` is a permutation and `inverse_T` its inverse."""
    if order_T is None or inverse_T is None:
        return x_TX
    out: Tensor = _Reordered.apply(x_TX, order_T, inverse_T)
    return out


class _Reordered(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x_TX: Tensor, order_T: Tensor, inverse_T: Tensor) -> Tensor:
        ctx.save_for_backward(order_T, inverse_T)
        return x_TX[order_T]

    @staticmethod
    def backward(ctx: Any, grad_TX: Tensor) -> tuple[Tensor, None, None]:
        order_T, inverse_T = ctx.saved_tensors
        return reordered(grad_TX, inverse_T, order_T), None, None
