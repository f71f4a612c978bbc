"""Dense attention of blocks of queries over blocks of keys, forward and backward, in plain torch.

Blocks of one shape are computed side by side. A block's rows see all of its keys but the padding, or in a causal block
(a square) the keys up to their own. Scores are made for a few query rows at a time, so memory grows with the number of
keys and not with the area. Query heads that read one key/value head are laid end to end as one tall matrix: K and V
are never expanded, and the sum over the heads of a group falls out of the matrix product.

Letters: G key/value heads, R query heads that share one, H = G * R, B blocks, N query rows and K keys of a block,
M = R * N stacked rows, D head dimension; X any dimensions or none. All tensors have one dtype, the compute dtype;
queries and keys arrive rotated, queries also multiplied by the scale.
"""

from __future__ import annotations

from collections.abc import Iterator

import torch
from torch import Tensor

TILE_ROWS = 256


def forward(
    q_GBRND: Tensor, k_GBKD: Tensor, v_GBKD: Tensor, causal: bool, padding_BK: Tensor | None
) -> tuple[Tensor, Tensor]:
    """Attention of each block.

    Args:
        q_GBRND, k_GBKD, v_GBKD: queries, keys and values; every row must see a key.
        causal: whether row i sees keys up to i only.
        padding_BK: keys that no row sees; None if there are none.

    Returns:
        `out_GBRND` and `lse_GBRN` (natural log).

    Raises:
        ValueError: a causal block that is not square.
    """
    out_GBRND, lse_GBRN = torch.empty_like(q_GBRND), torch.empty_like(q_GBRND[..., 0])
    for rows, keys in tiles(q_GBRND.shape[3], k_GBKD.shape[2], causal):
        tile = (..., rows, slice(None))
        scores_GBMK = masked_scores(_stacked(q_GBRND, rows), k_GBKD[:, :, keys], rows, causal, padding_BK)
        top_GBM1 = scores_GBMK.amax(dim=-1, keepdim=True)
        p_GBMK = scores_GBMK.sub_(top_GBM1).exp_()
        total_GBM1 = p_GBMK.sum(dim=-1, keepdim=True)
        out_GBRND[tile] = (p_GBMK @ v_GBKD[:, :, keys]).div_(total_GBM1).view_as(out_GBRND[tile])
        lse_GBRN[..., rows] = total_GBM1.log_().add_(top_GBM1).view_as(lse_GBRN[..., rows])
    return out_GBRND, lse_GBRN


def backward(
    d_out_GBRND: Tensor,
    q_GBRND: Tensor,
    k_GBKD: Tensor,
    v_GBKD: Tensor,
    lse_GBRN: Tensor,
    delta_GBRN: Tensor,
    causal: bool,
    padding_BK: Tensor | None,
) -> tuple[Tensor, Tensor, Tensor]:
    """The blocks' shares of the gradients (Dao, arXiv 2307.08691, section 3.1).

    Args:
        d_out_GBRND, q_GBRND, k_GBKD, v_GBKD, causal, padding_BK: as in `forward`.
        lse_GBRN: of the rows over *all* blocks they see, not of this block: then the probabilities are the final ones.
            A row with +inf has no share in any gradient.
        delta_GBRN: row sums of `d_out * out`, with the merged output for the same reason.

    Returns:
        `dq_GBRND` of the rotated and scaled queries, `dk_GBKD` of the rotated keys, `dv_GBKD`.
    """
    dq_GBRND, dk_GBKD, dv_GBKD = torch.empty_like(q_GBRND), torch.zeros_like(k_GBKD), torch.zeros_like(v_GBKD)
    for rows, keys in tiles(q_GBRND.shape[3], k_GBKD.shape[2], causal):
        tile = (..., rows, slice(None))
        q_GBMD, d_out_GBMD = _stacked(q_GBRND, rows), _stacked(d_out_GBRND, rows)
        lse_GBM1, delta_GBM1 = _stacked(lse_GBRN[..., None], rows), _stacked(delta_GBRN[..., None], rows)
        p_GBMK = masked_scores(q_GBMD, k_GBKD[:, :, keys], rows, causal, padding_BK).sub_(lse_GBM1).exp_()
        ds_GBMK = (d_out_GBMD @ v_GBKD[:, :, keys].mT).sub_(delta_GBM1).mul_(p_GBMK)
        dq_GBRND[tile] = (ds_GBMK @ k_GBKD[:, :, keys]).view_as(dq_GBRND[tile])
        dk_GBKD[:, :, keys] += ds_GBMK.mT @ q_GBMD
        dv_GBKD[:, :, keys] += p_GBMK.mT @ d_out_GBMD
    return dq_GBRND, dk_GBKD, dv_GBKD


def tiles(rows: int, keys: int, causal: bool) -> Iterator[tuple[slice, slice]]:
    """Cuts a block's rows; each tile comes with the keys that any of its rows sees."""
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


def masked_scores(
    q_GBMD: Tensor, k_GBKD: Tensor, rows: slice, causal: bool, padding_BK: Tensor | None
) -> Tensor:
    """Scores of one tile, with -inf put (selected, not added) where a row does not see a key."""
    scores_GBMK = q_GBMD @ k_GBKD.mT
    if causal:
        # All rows of the tile see the keys before its first row.
        square_GBRNN = scores_GBMK.unflatten(2, (-1, rows.stop - rows.start))[..., rows.start :]
        later_NN = torch.ones(square_GBRNN.shape[-2:], dtype=torch.bool, device=q_GBMD.device).triu(1)
        square_GBRNN.masked_fill_(later_NN, -torch.inf)
    if padding_BK is not None:
        scores_GBMK.masked_fill_(padding_BK[:, None], -torch.inf)
    return scores_GBMK


def _stacked(x_GBRNX: Tensor, rows: slice) -> Tensor:
    """Some rows of all heads of each group, one head after the other."""
    return x_GBRNX[:, :, :, rows].flatten(2, 3)
