"""Joining two attention results of the same rows over disjoint sets of keys.

Letters: H query heads, N rows, D head dimension.
"""

from __future__ import annotations

import torch
from torch import Tensor


def merge(a_out_HND: Tensor, a_lse_HN: Tensor, b_out_HND: Tensor, b_lse_HN: Tensor) -> tuple[Tensor, Tensor]:
    """Attention over the union of the keys of two partial results (Milakov and Gimelshein, arXiv 1805.02867).

    Args:
        a_out_HND, b_out_HND: outputs, each normalised over its own keys, in the compute dtype.
        a_lse_HN, b_lse_HN: natural-log sums of exponentiated scores; -inf marks a row that saw no key, whose output
            is not looked at. +inf is not a legal input.

    Returns:
        `(out_HND, lse_HN)`. Commutative to the bit; an empty side returns the other side exactly; two empty sides
        give 0 and -inf. A NaN on a side that is not empty stays a NaN.
    """
    top_HN = torch.maximum(a_lse_HN, b_lse_HN)
    a_empty_HN, b_empty_HN = a_lse_HN == -torch.inf, b_lse_HN == -torch.inf
    # Selected where empty: -inf - -inf is NaN, and an empty side's output may be anything.
    a_HN = torch.exp(a_lse_HN - top_HN).masked_fill(a_empty_HN, 0)
    b_HN = torch.exp(b_lse_HN - top_HN).masked_fill(b_empty_HN, 0)
    # The larger side weighs exactly 1, so the sum is below 1 only when both sides are empty.
    total_HN = (a_HN + b_HN).clamp(min=1)
    a_part_HND = torch.where(a_empty_HN[..., None], 0, a_out_HND * a_HN[..., None])
    b_part_HND = torch.where(b_empty_HN[..., None], 0, b_out_HND * b_HN[..., None])
    return (a_part_HND + b_part_HND) / total_HN[..., None], top_HN + torch.log(total_HN)
