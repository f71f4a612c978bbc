"""Attention over a plan as dense blocks, batches of slices, merged by log-sum-exp.

A slice's keys are seen at `position + shift`. Scores depend on position differences only, so the keys stay as they
are, rotated once at their own positions, and the query goes to `position - shift` for that slice, always from the
unrotated query: rotating an already rotated one again would round twice.

The backward pass goes over the same batches with the merged output and log-sum-exp, which make each slice's
probabilities the final ones; so the slices' gradients simply add, in the compute dtype.

Letters: T rows of the pack, H query heads, G key/value heads, R = H / G query heads that share one, M = R * T query
rows for each (all rows of one query head after all of another), D head dimension; B slices of a batch, N query rows and
K keys of each, P = B * R * N, L = B * K.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

from octopus.attention import dense
from octopus.attention.merge import merge
from octopus.attention.plan import Plan
from octopus.attention.rope import Rope, apply_rope
from octopus.attention.slice_batches import SliceBatch, group_slices, make_batch


def attend_sliced(
    q_HTD: Tensor, k_GTD: Tensor, v_GTD: Tensor, *, plan: Plan, rope: Rope | None, scale: float
) -> tuple[Tensor, Tensor]:
    """Same contract as `attend_reference`; the result differs by rounding only.

    Finite values in a slot that a row does not see leave the row the same to the bit.
    """
    compute_dtype = torch.promote_types(q_HTD.dtype, torch.float32)
    index = _index(plan, len(q_HTD) // len(k_GTD), q_HTD.device)
    out_HTD, lse_HT = _SlicedAttention.apply(  # type: ignore[no-untyped-call]
        q_HTD.to(compute_dtype) * scale,
        apply_rope(rope, k_GTD, index.positions_T).contiguous(),
        v_GTD.to(compute_dtype).contiguous(),
        index,
        rope,
    )
    return out_HTD.to(q_HTD.dtype), lse_HT


def query_positions(positions_N: Tensor, shift: int) -> Tensor:
    """Where queries must stand to see keys, left at their own positions, as if those had moved by `shift`."""
    return positions_N - shift


@dataclass(frozen=True, kw_only=True, eq=False)
class _Index:
    """A plan on a device: made once, used by every layer and by the backward passes."""

    positions_T: Tensor
    batches: tuple[SliceBatch, ...]


def _index(plan: Plan, group: int, device: torch.device) -> _Index:
    key = (_Index, group, device)
    if key not in plan.memo:
        positions_T = torch.tensor(plan.positions_T)
        plan.memo[key] = _Index(
            positions_T=positions_T.to(device),
            batches=tuple(
                make_batch(
                    slices,
                    positions_T=positions_T,
                    group=group,
                    query_positions=query_positions,
                    device=device,
                )
                for slices in group_slices(plan)
            ),
        )
    index: _Index = plan.memo[key]
    return index


class _SlicedAttention(torch.autograd.Function):
    """Takes queries scaled and unrotated, and keys rotated, all in the compute dtype; keys and values contiguous."""

    @staticmethod
    def forward(
        ctx: Any, q_HTD: Tensor, k_GTD: Tensor, v_GTD: Tensor, index: _Index, rope: Rope | None
    ) -> tuple[Tensor, Tensor]:
        heads, kv_heads = len(q_HTD), len(k_GTD)
        q_GMD, own_GMD = _stacked_queries(q_HTD, kv_heads, index, rope)
        out_GMD = torch.zeros_like(q_GMD)
        lse_GM = torch.full_like(q_GMD[..., 0], -torch.inf)
        for batch in index.batches:
            q_GBRND = _batch_queries(batch, q_GMD, own_GMD, rope)
            k_GBKD, v_GBKD = batch.keys_of(k_GTD), batch.keys_of(v_GTD)
            blocks = dense.forward(q_GBRND, k_GBKD, v_GBKD, batch.causal, batch.padding_BK)
            part_GFD, part_GF = map(batch.filled_of, blocks)
            if not batch.first:
                so_far = out_GMD.index_select(1, batch.rows_F), lse_GM.index_select(1, batch.rows_F)
                part_GFD, part_GF = merge(*so_far, part_GFD, part_GF)
            out_GMD.index_copy_(1, batch.rows_F, part_GFD)
            lse_GM.index_copy_(1, batch.rows_F, part_GF)
        ctx.save_for_backward(q_HTD, k_GTD, v_GTD, out_GMD, lse_GM)
        ctx.index, ctx.rope = index, rope
        lse_HT = dense.ungroup_heads(lse_GM, heads)
        ctx.mark_non_differentiable(lse_HT)
        return dense.ungroup_heads(out_GMD, heads), lse_HT

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, d_out_HTD: Tensor, _: Tensor) -> tuple[Tensor | None, ...]:
        q_HTD, k_GTD, v_GTD, out_GMD, lse_GM = ctx.saved_tensors
        index, rope, heads, kv_heads = ctx.index, ctx.rope, len(q_HTD), len(k_GTD)
        q_GMD, own_GMD = _stacked_queries(q_HTD, kv_heads, index, rope)
        d_out_GMD = dense.group_heads(d_out_HTD, kv_heads).contiguous()
        delta_GM = (d_out_GMD * out_GMD).sum(dim=-1)
        dq_GMD, d_own_GMD = torch.zeros_like(q_GMD), torch.zeros_like(q_GMD)
        dk_GTD, dv_GTD = torch.zeros_like(k_GTD), torch.zeros_like(v_GTD)
        for batch in index.batches:
            dq_GBRND, dk_GBKD, dv_GBKD = dense.backward(
                batch.queries_of(d_out_GMD),
                _batch_queries(batch, q_GMD, own_GMD, rope),
                batch.keys_of(k_GTD),
                batch.keys_of(v_GTD),
                batch.lse_of(lse_GM),
                batch.queries_of(delta_GM),
                batch.causal,
                batch.padding_BK,
            )
            if batch.positions_B1N is None:
                _add_rows(d_own_GMD, batch.rows_P, dq_GBRND.flatten(1, 3))
            else:
                # A rotation's transpose is the rotation back: each slice's share leaves by the angle it came in with.
                dq_GBRND = apply_rope(rope, dq_GBRND, -batch.positions_B1N)
                _add_rows(dq_GMD, batch.rows_P, dq_GBRND.flatten(1, 3))
            _add_rows(dk_GTD, batch.keys_L, dk_GBKD.flatten(1, 2))
            _add_rows(dv_GTD, batch.keys_L, dv_GBKD.flatten(1, 2))
        d_own_HTD = apply_rope(rope, dense.ungroup_heads(d_own_GMD, heads), -index.positions_T)
        return dense.ungroup_heads(dq_GMD, heads) + d_own_HTD, dk_GTD, dv_GTD, None, None


def _stacked_queries(q_HTD: Tensor, kv_heads: int, index: _Index, rope: Rope | None) -> tuple[Tensor, Tensor]:
    """All queries as `x_GMD`: unrotated, and rotated to their own positions."""
    own_HTD = apply_rope(rope, q_HTD, index.positions_T)
    return dense.group_heads(q_HTD, kv_heads).contiguous(), dense.group_heads(own_HTD, kv_heads).contiguous()


def _batch_queries(batch: SliceBatch, q_GMD: Tensor, own_GMD: Tensor, rope: Rope | None) -> Tensor:
    """A batch's queries, rotated to where they must stand."""
    if batch.positions_B1N is None:
        return batch.queries_of(own_GMD)
    return apply_rope(rope, batch.queries_of(q_GMD), batch.positions_B1N)


def _add_rows(x_GTD: Tensor, rows_N: Tensor, part_GND: Tensor) -> None:
    """Adds `part_GND` to some rows of a contiguous tensor, in place."""
    # Over one long table: several times as fast on the CPU as along the second dimension.
    kv_heads, length, _ = x_GTD.shape
    rows_GN = rows_N + length * torch.arange(kv_heads, device=rows_N.device)[:, None]
    x_GTD.flatten(0, 1).index_add_(0, rows_GN.flatten(), part_GND.flatten(0, 1))
