"""Attention over a plan as one dense block per slice, merged by log-sum-exp.

A slice's keys are seen at `position + shift`. Scores depend on position differences only, so the keys stay as they
are, rotated once at their own positions, and the query goes to `position - shift` for that slice, always from the
unrotated query: rotating an already rotated one again would round twice.

The backward pass goes over the same slices with the merged output and log-sum-exp, which make each slice's
probabilities the final ones; so the slices' gradients simply add, in the compute dtype.

Letters: T rows of the pack, N rows of a slice, H query heads, G key/value heads, D head dimension.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

from octopus.attention import dense
from octopus.attention.merge import merge
from octopus.attention.plan import Plan, Slice
from octopus.attention.rope import Rope, apply_rope


def attend_sliced(
    q_HTD: Tensor, k_GTD: Tensor, v_GTD: Tensor, *, plan: Plan, rope: Rope | None, scale: float
) -> tuple[Tensor, Tensor]:
    """Same contract as `attend_reference`; the result differs by rounding only.

    Finite values in a slot that a row does not see leave the row the same to the bit.
    """
    compute_dtype = torch.promote_types(q_HTD.dtype, torch.float32)
    positions_T = torch.tensor(plan.positions_T, device=q_HTD.device)
    out_HTD, lse_HT = _SlicedAttention.apply(  # type: ignore[no-untyped-call]
        q_HTD.to(compute_dtype),
        apply_rope(rope, k_GTD, positions_T),
        v_GTD.to(compute_dtype),
        positions_T,
        plan.slices,
        rope,
        scale,
    )
    return out_HTD.to(q_HTD.dtype), lse_HT


def query_positions(positions_N: Tensor, shift: int) -> Tensor:
    """Where queries must stand to see keys, left at their own positions, as if those had moved by `shift`."""
    return positions_N - shift


class _SlicedAttention(torch.autograd.Function):
    """Takes queries unrotated and keys rotated, all in the compute dtype."""

    @staticmethod
    def forward(
        ctx: Any,
        q_HTD: Tensor,
        k_GTD: Tensor,
        v_GTD: Tensor,
        positions_T: Tensor,
        slices: tuple[Slice, ...],
        rope: Rope | None,
        scale: float,
    ) -> tuple[Tensor, Tensor]:
        out_HTD = torch.zeros_like(q_HTD)
        lse_HT = torch.full_like(q_HTD[..., 0], -torch.inf)
        for piece in slices:
            rows, keys = slice(piece.q0, piece.q1), slice(piece.k0, piece.k1)
            q_HND = apply_rope(rope, q_HTD[:, rows], query_positions(positions_T[rows], piece.shift))
            part = dense.forward(q_HND, k_GTD[:, keys], v_GTD[:, keys], piece.causal, scale)
            out_HTD[:, rows], lse_HT[:, rows] = merge(out_HTD[:, rows], lse_HT[:, rows], *part)
        ctx.save_for_backward(q_HTD, k_GTD, v_GTD, positions_T, out_HTD, lse_HT)
        ctx.mark_non_differentiable(lse_HT)
        ctx.slices, ctx.rope, ctx.scale = slices, rope, scale
        return out_HTD, lse_HT

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, d_out_HTD: Tensor, _: Tensor) -> tuple[Tensor | None, ...]:
        q_HTD, k_GTD, v_GTD, positions_T, out_HTD, lse_HT = ctx.saved_tensors
        delta_HT = (d_out_HTD * out_HTD).sum(dim=-1)
        dq_HTD, dk_GTD, dv_GTD = torch.zeros_like(q_HTD), torch.zeros_like(k_GTD), torch.zeros_like(v_GTD)
        for piece in ctx.slices:
            rows, keys = slice(piece.q0, piece.q1), slice(piece.k0, piece.k1)
            positions_N = query_positions(positions_T[rows], piece.shift)
            dq_HND, dk_GND, dv_GND = dense.backward(
                d_out_HTD[:, rows],
                apply_rope(ctx.rope, q_HTD[:, rows], positions_N),
                k_GTD[:, keys],
                v_GTD[:, keys],
                lse_HT[:, rows],
                delta_HT[:, rows],
                piece.causal,
                ctx.scale,
            )
            # A rotation's transpose is the rotation back: each slice's share leaves by the angle it came in with.
            dq_HTD[:, rows] += apply_rope(ctx.rope, dq_HND, -positions_N)
            dk_GTD[:, keys] += dk_GND
            dv_GTD[:, keys] += dv_GND
        return dq_HTD, dk_GTD, dv_GTD, None, None, None, None
