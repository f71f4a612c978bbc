"""Attention over a plan, written to be read: the specification that every backend is compared with.

Each row is computed alone, over exactly the keys it sees. A hidden slot is never touched, so whatever lies there
(NaN included) cannot reach the row. Keys are rotated to where the row sees them and the query to its own position;
no shift is applied to queries here, unlike in every other backend.

Letters: T rows of the pack, K keys visible to one row, H query heads, G key/value heads, D head dimension.
"""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor

from octopus.attention.exports import dense_view
from octopus.attention.plan import Plan
from octopus.attention.rope import Rope, apply_rope


def attend_reference(
    q_HTD: Tensor, k_GTD: Tensor, v_GTD: Tensor, *, plan: Plan, rope: Rope | None, scale: float
) -> tuple[Tensor, Tensor]:
    """Softmax attention of every row of a pack over the keys that its plan shows it.

    Args:
        q_HTD: queries, not rotated. Query head h reads key/value head `h // (H // G)`.
        k_GTD: keys, not rotated.
        v_GTD: values.
        plan: who sees whom, and at which positions.
        rope: rotary embedding, None for a model without positions.
        scale: factor of the scores.

    Returns:
        The outputs `out_HTD` in q's dtype, and `lse_HT`, the natural-log sum of the exponentiated scores in
        `promote(q.dtype, float32)`, detached. A row that sees nothing gives 0 and -inf, and gradients 0.
    """
    visible_TT, positions_TT = dense_view(plan)
    compute_dtype, device = torch.promote_types(q_HTD.dtype, torch.float32), q_HTD.device
    # The empty first pieces make a pack without rows legal.
    outs = [q_HTD[:, :0].to(compute_dtype)]
    lses = [q_HTD[:, :0, 0].to(compute_dtype)]
    for row in range(plan.length):
        keys = np.flatnonzero(visible_TT[row])
        keys_K = torch.tensor(keys, device=device)
        query_position_1 = torch.tensor(plan.positions_T[row : row + 1], device=device)
        key_positions_K = torch.tensor(positions_TT[row, keys], device=device)
        out_H1D, lse_H1 = attend_row(
            apply_rope(rope, q_HTD[:, row : row + 1], query_position_1),
            apply_rope(rope, k_GTD.index_select(1, keys_K), key_positions_K),
            v_GTD.index_select(1, keys_K).to(compute_dtype),
            scale,
        )
        outs.append(out_H1D)
        lses.append(lse_H1)
    return torch.cat(outs, dim=1).to(q_HTD.dtype), torch.cat(lses, dim=1).detach()


def attend_row(q_H1D: Tensor, k_GKD: Tensor, v_GKD: Tensor, scale: float) -> tuple[Tensor, Tensor]:
    """One rotated query per head over its K visible, rotated keys; K = 0 sums to nothing: output 0, lse log(0)."""
    heads, kv_heads = q_H1D.shape[0], k_GKD.shape[0]
    kv_head_H = torch.arange(heads, device=q_H1D.device) // (heads // kv_heads)
    scores_H1K = q_H1D @ k_GKD[kv_head_H].mT * scale
    return torch.softmax(scores_H1K, dim=-1) @ v_GKD[kv_head_H], torch.logsumexp(scores_H1K, dim=-1)
