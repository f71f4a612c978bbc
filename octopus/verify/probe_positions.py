"""Where a kernel really sees each key, for attention that rotates inside: read off the weights it gives.

All queries and all keys get the same content in one pair of rotary dimensions, so a score is the cosine of the angle
between row and key, and with the key a quarter turn ahead it is the sine. The weights, read off with coded values, give
the scores up to a constant of the row, which the row's own key fixes: its angle is zero. Angle over frequency is the
distance in positions, a whole number. In a dimension that carries no position every angle must be zero.

Letters: H query heads, N = K = T rows, D head dimension, R half of the rotary dimensions.
"""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import torch
from torch import Tensor

from octopus.verify.probe import Attention, Shape

SHARPNESS = (
    4.0  # Largest score: weights stay within e^8 of each other, and errors of a weight are divided by it.
)


def probe_distances(
    attention: Attention, shape: Shape, *, inverse_frequencies_R: np.ndarray, scale: float
) -> np.ndarray:
    """The distance in positions at which every row sees every key.

    Args:
        attention: Takes unrotated queries and keys; half-split layout: dimension i turns with dimension i + R.
        shape: As many queries as keys; every row must see itself.
        inverse_frequencies_R: Radians a position.
        scale: Factor of the scores.

    Returns:
        float64 `[T, T]`: position of the row minus position of the key, as the first query head has it; NaN where the
        key is not seen. Distances are found modulo a full turn of the frequency used, which is the fastest that turns
        less than half over T positions.
    """
    pair = _slow_pair(inverse_frequencies_R, shape.keys)
    half = len(inverse_frequencies_R)
    cosines_TT = 1 + _relative_scores(attention, shape, scale, pair, pair)
    sines_TT = _relative_scores(attention, shape, scale, pair, pair + half)
    # A key turned by `p` in the pair (i, i + R): content in i + R is content in i, a quarter turn ahead.
    angles_TT = np.arctan2(sines_TT, cosines_TT)
    found: np.ndarray = angles_TT / inverse_frequencies_R[pair]
    return found


def probe_unturned(attention: Attention, shape: Shape, *, rotary_dim: int, scale: float) -> np.ndarray:
    """Bool `[T, T]`: where a dimension beyond the rotary ones turns all the same. Asks the first and the last of them.

    A weight that is off by less than the square root of the dtype's unit roundoff is taken for rounding.
    """
    turned_TT = np.zeros((shape.queries, shape.keys), dtype=bool)
    for dim in {rotary_dim, shape.head_dim - 1} if rotary_dim < shape.head_dim else set():
        scores_TT = _relative_scores(attention, shape, scale, dim, dim)
        turned_TT |= np.abs(np.nan_to_num(scores_TT)) > math.sqrt(torch.finfo(shape.dtype).eps)
    return turned_TT


def _slow_pair(inverse_frequencies_R: np.ndarray, length: int) -> int:
    """The fastest pair that turns less than half over the row; the slowest if all turn more."""
    slow = np.flatnonzero(inverse_frequencies_R * length < math.pi)
    return (
        int(slow[np.argmax(inverse_frequencies_R[slow])])
        if len(slow)
        else int(np.argmin(inverse_frequencies_R))
    )


@torch.no_grad()
def _relative_scores(attention: Attention, shape: Shape, scale: float, q_dim: int, k_dim: int) -> np.ndarray:
    """`[T, T]`: (score of the key minus score of the row's own key), in units of the largest; NaN where unseen."""
    size = math.sqrt(SHARPNESS / scale)
    q_HTD, k_GTD = (
        _content(replace(shape, kv_heads=heads), dim, size)
        for heads, dim in ((shape.heads, q_dim), (shape.kv_heads, k_dim))
    )
    weights_TT = np.empty((shape.queries, shape.keys))
    for first in range(0, shape.keys, shape.head_dim):
        asked = min(shape.head_dim, shape.keys - first)
        v_GTD = torch.zeros_like(k_GTD)
        v_GTD[:, range(first, first + asked), range(asked)] = 1
        found = attention(q_HTD, k_GTD, v_GTD)
        out_HTD = found if isinstance(found, Tensor) else found[0]
        weights_TT[:, first : first + asked] = out_HTD[0, :, :asked].double().cpu().numpy()
    with np.errstate(divide="ignore", invalid="ignore"):
        scores_TT = np.where(weights_TT > 0, np.log(weights_TT), np.nan)
    found_TT: np.ndarray = (scores_TT - np.diagonal(scores_TT)[:, None]) / SHARPNESS
    return found_TT


def _content(shape: Shape, dim: int, size: float) -> Tensor:
    x_GTD = torch.zeros(shape.kv_heads, shape.keys, shape.head_dim, dtype=shape.dtype, device=shape.device)
    x_GTD[..., dim] = size
    return x_GTD
