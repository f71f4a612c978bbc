"""Slices grouped into batches, so that a pack of many small slices costs few dense calls.

Small slices whose lengths round up to the same powers of two are padded to the longest among them; a large slice is a
batch of its own. No two slices of a batch share a query row or a key row, so what a batch gives can be merged and
added in one go, and every sum has one order. Padding reads its slice's last row again: it brings in nothing that the
slice does not see. A mirrored slice is read from its end, rows and keys, and is a causal one then.

Letters: T rows of the pack, G key/value heads, R query heads that share one, M = R * T query rows for each (row t of
the r-th head is `r * T + t`); B slices of a batch, N query rows and K keys that each is padded to, P = B * R * N query
places, F of them filled (no padding), L = B * K key places; X any dimensions or none.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from octopus.attention.plan import Plan, Slice

SHORTEST = 32  # Lengths up to this one are not told apart.
SMALL_PAIRS = 2**16  # A slice of more (query, key) pairs is a batch of its own.
BATCH_PAIRS = 2**20  # No batch of several slices has more pairs for each query head, padding included.


@dataclass(frozen=True, kw_only=True, eq=False)
class SliceBatch:
    """Slices that one dense call computes.

    Attributes:
        shape: `(B, R, N)`.
        causal: Whether they are squares in which row i sees keys up to i. All are, or none.
        first: Whether no row of theirs is in an earlier batch.
        rows_P: The query row that each place reads.
        keys_L: The key row that each place reads.
        positions_B1N: Where the queries must stand; None if they stand at their own positions.
        padding_BK: Which keys are padding; None if none is, or if the causal mask hides them.
        filled_F: The query places that are no padding.
        rows_F: Their rows, each once.
    """

    shape: tuple[int, int, int]
    causal: bool
    first: bool
    rows_P: Tensor
    keys_L: Tensor
    positions_B1N: Tensor | None
    padding_BK: Tensor | None
    filled_F: Tensor
    rows_F: Tensor

    def queries_of(self, x_GMX: Tensor) -> Tensor:
        """The batch's query rows, `x_GBRNX`."""
        return x_GMX.index_select(1, self.rows_P).view(len(x_GMX), *self.shape, *x_GMX.shape[2:])

    def keys_of(self, x_GTX: Tensor) -> Tensor:
        """The batch's key rows, `x_GBKX`."""
        return x_GTX.index_select(1, self.keys_L).view(len(x_GTX), self.shape[0], -1, *x_GTX.shape[2:])

    def filled_of(self, x_GBRNX: Tensor) -> Tensor:
        """The places that are no padding, `x_GFX`."""
        return x_GBRNX.flatten(1, 3).index_select(1, self.filled_F)

    def lse_of(self, lse_GM: Tensor) -> Tensor:
        """The batch's `lse_GBRN`, +inf at padding: there all probabilities are 0, and so all gradients."""
        lse_GP = lse_GM.new_full((len(lse_GM), len(self.rows_P)), torch.inf)
        lse_GP.index_copy_(1, self.filled_F, lse_GM.index_select(1, self.rows_F))
        return lse_GP.view(len(lse_GM), *self.shape)


def make_batch(
    slices: Sequence[Slice],
    *,
    positions_T: Tensor,
    group: int,
    query_positions: Callable[[Tensor, int], Tensor],
    device: torch.device,
) -> SliceBatch:
    """Lowers slices that `group_slices` put together to index tensors on `device`.

    Args:
        slices: the slices.
        positions_T: position of each row of the pack.
        group: number R of query heads that share a key/value head.
        query_positions: where queries must stand to see keys moved by a shift.
        device: where attention runs.
    """
    kind = slices[0]
    causal = kind.causal or kind.mirrored
    rows_BN, filled_BN = _padded(((s.q0, s.q1) for s in slices), backwards=kind.mirrored)
    keys_BK, seen_BK = _padded(((s.k0, s.k1) for s in slices), backwards=kind.mirrored)
    shape = (len(slices), group, rows_BN.shape[1])
    rows_P = (rows_BN[:, None] + len(positions_T) * torch.arange(group)[:, None]).flatten()
    filled_F = filled_BN[:, None].expand(shape).flatten().nonzero().flatten()
    positions_B1N = padding_BK = None
    if kind.shift:
        stand = [
            query_positions(positions_T[rows_N], s.shift) for rows_N, s in zip(rows_BN, slices, strict=True)
        ]
        positions_B1N = torch.stack(stand)[:, None].to(device)
    if not causal and not seen_BK.all():
        padding_BK = (~seen_BK).to(device)
    return SliceBatch(
        shape=shape,
        causal=causal,
        first=kind.causal,
        rows_P=rows_P.to(device),
        keys_L=keys_BK.flatten().to(device),
        positions_B1N=positions_B1N,
        padding_BK=padding_BK,
        filled_F=filled_F.to(device),
        rows_F=rows_P[filled_F].to(device),
    )


def _padded(spans: Iterable[tuple[int, int]], *, backwards: bool) -> tuple[Tensor, Tensor]:
    """The rows of each span, its last one repeated to the length of the longest; and which are no repetition."""
    start_B1, stop_B1 = torch.tensor(list(spans)).T[..., None]
    length_B1 = stop_B1 - start_B1
    step_1N = torch.arange(int(length_B1.max()))[None]
    step_BN = step_1N.minimum(length_B1 - 1)
    return stop_B1 - 1 - step_BN if backwards else start_B1 + step_BN, step_1N < length_B1


def group_slices(plan: Plan) -> Iterator[Sequence[Slice]]:
    """Deals the slices of a plan to batches, causal ones first; slices without a pair are left out."""
    buckets: dict[tuple[object, ...], list[Slice]] = defaultdict(list)
    for piece in sorted(plan.slices, key=lambda piece: not piece.causal):
        rows, keys = piece.q1 - piece.q0, piece.k1 - piece.k0
        if rows * keys > SMALL_PAIRS:
            buckets[(piece,)].append(piece)
        elif rows * keys:
            kind = piece.causal, piece.mirrored, piece.shift == 0
            buckets[kind, _length_class(rows), _length_class(keys)].append(piece)
    for bucket in buckets.values():
        for layer in _disjoint(bucket, plan.length):
            widest = max(s.q1 - s.q0 for s in layer) * max(s.k1 - s.k0 for s in layer)
            yield from _chunks(layer, max(BATCH_PAIRS // widest, 1))


def _length_class(length: int) -> int:
    return (max(length, SHORTEST) - 1).bit_length()


def _disjoint(slices: Iterable[Slice], length: int) -> list[list[Slice]]:
    """Deals slices to layers in which no two share a query row or a key row."""
    layers: list[list[Slice]] = []
    # The first layer that is open to each row.
    queries_T, keys_T = np.zeros((2, length), dtype=np.int64)
    for piece in slices:
        rows, keys = queries_T[piece.q0 : piece.q1], keys_T[piece.k0 : piece.k1]
        layer = max(rows.max(), keys.max())
        if layer == len(layers):
            layers.append([])
        layers[layer].append(piece)
        rows[:] = keys[:] = layer + 1
    return layers


def _chunks(slices: Sequence[Slice], size: int) -> Iterator[Sequence[Slice]]:
    return (slices[i : i + size] for i in range(0, len(slices), size))
