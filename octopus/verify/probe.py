"""The mask that a kernel really applies, found by asking the kernel, whatever it was told.

With all queries zero every score is zero, so a row's output is the plain mean of the values it sees. Values that are
zero but for one coded key therefore tell, exactly and in every dtype, who sees that key: zero or not zero. As many keys
as a head has dimensions are asked at once, one dimension each. The same outputs tell how often a key is counted, and
exp(LSE), where the kernel gives it, how many keys it believes to have seen.

Letters: H query heads, G key/value heads, N query rows, K key rows, D head dimension.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

import numpy as np
import torch
from torch import Tensor

from octopus.core.errors import invariant


class Attention(Protocol):
    """Any attention with its mask already inside it."""

    def __call__(
        self, q_HND: Tensor, k_GKD: Tensor, v_GKD: Tensor, /
    ) -> Tensor | tuple[Tensor, Tensor | None]:
        """Returns the outputs [H, N, D], or the outputs and their natural-log LSE [H, N] or None."""


@dataclass(frozen=True, kw_only=True)
class Shape:
    """What a kernel is asked with.

    Attributes:
        heads: Query heads.
        kv_heads: Key/value heads; divides `heads`.
        queries: Query rows.
        keys: Key rows.
        head_dim: Head dimension.
        dtype: Of q, k and v.
        device: Where the kernel runs.
    """

    heads: int
    kv_heads: int
    queries: int
    keys: int
    head_dim: int
    dtype: torch.dtype = torch.float64
    device: torch.device | str = "cpu"


@dataclass(frozen=True, kw_only=True)
class Probed:
    """What a kernel was found to do.

    Attributes:
        seen_HNK: bool, whether row i of head h sees key j.
        times_HNK: int64, how often it counts the key; 1 for each seen key in a sound kernel.
        counted_HN: exp(LSE), how many keys the kernel believes each row sees; None if it gives no LSE. Other than a
            whole number where something besides the visible keys enters the sum (a sink, a bias).
        kv_head_H: int64, the key/value head that each query head reads, -1 for a head whose rows see nothing, or which
            mixes several.
        not_a_number_HN: bool, rows that gave NaN or infinity; they are taken to see nothing.
    """

    seen_HNK: np.ndarray
    times_HNK: np.ndarray
    counted_HN: np.ndarray | None
    kv_head_H: np.ndarray
    not_a_number_HN: np.ndarray

    @property
    def visible_NK(self) -> np.ndarray:
        """What any head sees."""
        return np.asarray(self.seen_HNK.any(axis=0))


def probe(attention: Attention, shape: Shape) -> Probed:
    """Asks an attention callable who sees whom.

    Calls it `ceil(K / D) + 1` times without autograd. Nothing is assumed of its mask. A mask that depends on the data
    is seen as it is for zero queries and keys.

    Raises:
        ValueError: the outputs are not [H, N, D], or the LSE is not [H, N].
    """
    means_HNK = np.empty((shape.heads, shape.queries, shape.keys))
    counted_HN: np.ndarray | None = None
    for first in range(0, shape.keys, shape.head_dim):
        asked = min(shape.head_dim, shape.keys - first)
        v_GKD = _zeros(shape, shape.kv_heads, shape.keys)
        v_GKD[:, range(first, first + asked), range(asked)] = 1
        out_HND, counted_HN = _ask(attention, shape, v_GKD)
        means_HNK[..., first : first + asked] = out_HND[..., :asked]
    bad_HN = ~np.isfinite(means_HNK.sum(axis=-1))  # the sum of a row is one, if it is a number
    seen_HNK = np.where(bad_HN[..., None], 0.0, means_HNK) > 0
    return Probed(
        seen_HNK=seen_HNK,
        times_HNK=_times(np.where(seen_HNK, means_HNK, 0.0)),
        counted_HN=counted_HN,
        kv_head_H=_kv_heads(attention, shape, seen_HNK),
        not_a_number_HN=bad_HN,
    )


def _zeros(shape: Shape, heads: int, rows: int) -> Tensor:
    return torch.zeros(heads, rows, shape.head_dim, dtype=shape.dtype, device=shape.device)


@torch.no_grad()
def _ask(attention: Attention, shape: Shape, v_GKD: Tensor) -> tuple[np.ndarray, np.ndarray | None]:
    """The outputs and exp(LSE) for zero queries and keys."""
    found = attention(
        _zeros(shape, shape.heads, shape.queries), _zeros(shape, shape.kv_heads, shape.keys), v_GKD
    )
    out_HND, lse_HN = (found, None) if isinstance(found, Tensor) else found
    if out_HND.shape != (shape.heads, shape.queries, shape.head_dim):
        raise ValueError(
            f"the attention gave outputs of shape {tuple(out_HND.shape)}, "
            f"not [heads {shape.heads}, rows {shape.queries}, head dimension {shape.head_dim}]"
        )
    if lse_HN is not None and lse_HN.shape != out_HND.shape[:2]:
        raise ValueError(
            f"the attention gave an LSE of shape {tuple(lse_HN.shape)}, not {tuple(out_HND.shape[:2])}"
        )
    return out_HND.double().cpu().numpy(), None if lse_HN is None else lse_HN.double().exp().cpu().numpy()


def _times(means_HNK: np.ndarray) -> np.ndarray:
    """Means over the smallest of their row: a key that is counted twice weighs twice as much as one counted once."""
    positive_HNK = np.where(means_HNK > 0, means_HNK, np.inf)
    once_HN1 = positive_HNK.min(axis=-1, keepdims=True, initial=np.inf)
    found: np.ndarray = np.rint(means_HNK / once_HN1).astype(np.int64)
    return found


def _kv_heads(attention: Attention, shape: Shape, seen_HNK: np.ndarray) -> np.ndarray:
    """The head whose values come out: key/value head j holds j + 1 in every slot, so every mean of it is j + 1."""
    codes_G = torch.arange(1, shape.kv_heads + 1, dtype=shape.dtype, device=shape.device)
    v_GKD = codes_G[:, None, None].expand(shape.kv_heads, shape.keys, shape.head_dim).contiguous()
    out_HND, _ = _ask(attention, shape, v_GKD)
    invariant(out_HND.shape[:2] == seen_HNK.shape[:2], "two calls of one attention gave two shapes")
    found_H = np.full(shape.heads, -1, dtype=np.int64)
    for head in range(shape.heads):
        read = np.unique(np.rint(out_HND[head][seen_HNK[head].any(axis=-1)]))
        if len(read) == 1 and 1 <= read[0] <= shape.kv_heads:
            found_H[head] = int(read[0]) - 1
    return found_H
