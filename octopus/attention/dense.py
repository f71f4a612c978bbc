"""Dense attention of a block of queries over a block of keys, forward and backward, in plain torch.

The block's rows see all of its keys, or in a causal block (a square) the keys up to their own. Scores are made for a
few query rows at a time, so memory grows with the number of keys and not with the area. Query heads that read one
key/value head are laid end to end as one tall matrix: K and V are never expanded, and the sum over the heads of a
group falls out of the matrix product.

Letters: N query rows and K keys of the block, H query heads, G key/value heads, M = (H / G) * N stacked rows,
D head dimension. All tensors have one dtype, the compute dtype; queries and keys arrive rotated.
"""

from __future__ import annotations

from collections.abc import Iterator

import torch
from torch import Tensor

TILE_ROWS = 256


def forward(q_HND: Tensor, k_GKD: Tensor, v_GKD: Tensor, causal: bool, scale: float) -> tuple[Tensor, Tensor]:
    """Attention of one block.

    Returns:
        `out_HND` and `lse_HN` (natural log). With no keys at all: 0 and -inf.

    Raises:
        ValueError: a causal block that is not square.
    """
    out_HND, lse_HN = torch.empty_like(q_HND), torch.empty_like(q_HND[..., 0])
    kv_heads = k_GKD.shape[0]
    for rows, keys in tiles(q_HND.shape[1], k_GKD.shape[1], causal):
        scores_GMK = masked_scores(group_heads(q_HND[:, rows], kv_heads), k_GKD[:, keys], rows, causal, scale)
        out_HND[:, rows] = ungroup_heads(torch.softmax(scores_GMK, dim=-1) @ v_GKD[:, keys], q_HND.shape[0])
        lse_HN[:, rows] = ungroup_heads(torch.logsumexp(scores_GMK, dim=-1), q_HND.shape[0])
    return out_HND, lse_HN


def backward(
    d_out_HND: Tensor,
    q_HND: Tensor,
    k_GKD: Tensor,
    v_GKD: Tensor,
    lse_HN: Tensor,
    delta_HN: Tensor,
    causal: bool,
    scale: float,
) -> tuple[Tensor, Tensor, Tensor]:
    """The block's share of the gradients (Dao, arXiv 2307.08691, section 3.1).

    Args:
        lse_HN: of the rows over *all* blocks they see, not of this block: then the probabilities are the final ones.
        delta_HN: row sums of `d_out * out`, with the merged output for the same reason.

    Returns:
        `dq_HND` of the rotated queries, `dk_GKD` of the rotated keys, `dv_GKD`.
    """
    dq_HND, dk_GKD, dv_GKD = torch.empty_like(q_HND), torch.zeros_like(k_GKD), torch.zeros_like(v_GKD)
    heads, kv_heads = q_HND.shape[0], k_GKD.shape[0]
    for rows, keys in tiles(q_HND.shape[1], k_GKD.shape[1], causal):
        q_GMD, d_out_GMD = group_heads(q_HND[:, rows], kv_heads), group_heads(d_out_HND[:, rows], kv_heads)
        lse_GM, delta_GM = group_heads(lse_HN[:, rows], kv_heads), group_heads(delta_HN[:, rows], kv_heads)
        scores_GMK = masked_scores(q_GMD, k_GKD[:, keys], rows, causal, scale)
        p_GMK = torch.exp(scores_GMK - lse_GM[..., None])
        ds_GMK = p_GMK * (d_out_GMD @ v_GKD[:, keys].mT - delta_GM[..., None]) * scale
        dq_HND[:, rows] = ungroup_heads(ds_GMK @ k_GKD[:, keys], heads)
        dk_GKD[:, keys] += ds_GMK.mT @ q_GMD
        dv_GKD[:, keys] += p_GMK.mT @ d_out_GMD
    return dq_HND, dk_GKD, dv_GKD


def tiles(rows: int, keys: int, causal: bool) -> Iterator[tuple[slice, slice]]:
    """Cuts the block's rows; each tile comes with the keys that any of its rows sees."""
    if causal and rows != keys:
        raise ValueError(f"a causal block must be square, not {rows} rows by {keys} keys")
    for start in range(0, rows, TILE_ROWS):
        stop = min(start + TILE_ROWS, rows)
        yield slice(start, stop), slice(0, stop if causal else keys)


def group_heads(x_HNX: Tensor, kv_heads: int) -> Tensor:
    """Stacks the rows of the query heads that share a key/value head: head h goes to group `h // (H // G)`."""
    return x_HNX.reshape(kv_heads, -1, *x_HNX.shape[2:])


def ungroup_heads(x_GMX: Tensor, heads: int) -> Tensor:
    """Undoes `group_heads`."""
    return x_GMX.reshape(heads, -1, *x_GMX.shape[2:])


def masked_scores(q_GMD: Tensor, k_GKD: Tensor, rows: slice, causal: bool, scale: float) -> Tensor:
    """Scaled scores of one tile, with -inf put (selected, not added) where a causal row does not see a key."""
    scores_GMK = q_GMD @ k_GKD.mT * scale
    if causal:
        row_N1 = torch.arange(rows.start, rows.stop, device=q_GMD.device)[:, None]
        hidden_NK = torch.arange(k_GKD.shape[1], device=q_GMD.device) > row_N1
        scores_GMK.unflatten(1, (-1, len(row_N1))).masked_fill_(hidden_NK, -torch.inf)
    return scores_GMK
