"""The library backends as operators of PyTorch, whose shapes are known without running them.

So `torch.compile`, activation checkpointing and whatever else must see through a layer can.

An operator takes tensors and numbers only. A plan travels as its slices; the plan itself, with what was lowered from
it, is found again by that tensor, and made anew from it if it is gone.

Letters: T rows, S slices, H query heads, G key/value heads, D head dimension, R half of the rotary dimensions.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.utils.weak import WeakTensorKeyDictionary

from octopus.attention.libraries.kernel import LibraryPass, library_pass
from octopus.attention.plan import Plan, Slice
from octopus.attention.rope import Rope

_plans = WeakTensorKeyDictionary()  # Slices as a tensor -> the plan they are of. Nothing is kept alive by it.


def attend_by_library(
    q_HTD: Tensor, k_GTD: Tensor, v_GTD: Tensor, *, plan: Plan, rope: Rope | None, scale: float, name: str
) -> tuple[Tensor, Tensor]:
    """Has the contract of `attend_reference`, by the named backend; for bfloat16 and float16 on a GPU.

    Raises:
        BackendUnavailable: the library, the GPU, the dtype or the head dimension is missing.
    """
    slices_S7, positions_T = _tensors(plan)
    pace_R = None if rope is None else rope.inverse_frequencies_R
    out_HTD, lse_HT = _attend(q_HTD, k_GTD, v_GTD, slices_S7, positions_T, pace_R, scale, name)
    return out_HTD, lse_HT


@torch.library.custom_op("octopus::attend", mutates_args=())
def _attend(
    q_HTD: Tensor,
    k_GTD: Tensor,
    v_GTD: Tensor,
    slices_S7: Tensor,
    positions_T: Tensor,
    pace_R: Tensor | None,
    scale: float,
    name: str,
) -> tuple[Tensor, Tensor]:
    return _pass(q_HTD, slices_S7, positions_T, pace_R, name).forward(q_HTD, k_GTD, v_GTD, scale)


@_attend.register_fake
def _attend_shapes(
    q_HTD: Tensor,
    k_GTD: Tensor,
    v_GTD: Tensor,
    slices_S7: Tensor,
    positions_T: Tensor,
    pace_R: Tensor | None,
    scale: float,
    name: str,
) -> tuple[Tensor, Tensor]:
    heads, rows, dim = q_HTD.shape
    lse_dtype = torch.promote_types(q_HTD.dtype, torch.float32)
    return q_HTD.new_empty((rows, heads, dim)).transpose(0, 1), q_HTD.new_empty((heads, rows), dtype=lse_dtype)


@torch.library.custom_op("octopus::attend_backward", mutates_args=())
def _attend_backward(
    d_out_HTD: Tensor,
    q_HTD: Tensor,
    k_GTD: Tensor,
    v_GTD: Tensor,
    out_HTD: Tensor,
    lse_HT: Tensor,
    slices_S7: Tensor,
    positions_T: Tensor,
    pace_R: Tensor | None,
    scale: float,
    name: str,
) -> tuple[Tensor, Tensor, Tensor]:
    made = _pass(q_HTD, slices_S7, positions_T, pace_R, name)
    return made.backward(d_out_HTD, q_HTD, k_GTD, v_GTD, out_HTD, lse_HT, scale)


@_attend_backward.register_fake
def _attend_backward_shapes(
    d_out_HTD: Tensor,
    q_HTD: Tensor,
    k_GTD: Tensor,
    v_GTD: Tensor,
    out_HTD: Tensor,
    lse_HT: Tensor,
    slices_S7: Tensor,
    positions_T: Tensor,
    pace_R: Tensor | None,
    scale: float,
    name: str,
) -> tuple[Tensor, Tensor, Tensor]:
    dq_HTD, dk_GTD, dv_GTD = (x.new_empty(x.shape) for x in (q_HTD, k_GTD, v_GTD))
    return dq_HTD, dk_GTD, dv_GTD


def _save(ctx: Any, inputs: tuple[Any, ...], output: tuple[Tensor, Tensor]) -> None:
    *tensors, ctx.scale, ctx.name = inputs
    ctx.mark_non_differentiable(output[1])
    ctx.save_for_backward(*tensors, *output)


def _gradients(ctx: Any, d_out_HTD: Tensor, _: Tensor | None) -> tuple[Tensor | None, ...]:
    q_HTD, k_GTD, v_GTD, slices_S7, positions_T, pace_R, out_HTD, lse_HT = ctx.saved_tensors
    made = _attend_backward(
        d_out_HTD, q_HTD, k_GTD, v_GTD, out_HTD, lse_HT, slices_S7, positions_T, pace_R, ctx.scale, ctx.name
    )
    return (*made, None, None, None, None, None)


_attend.register_autograd(_gradients, setup_context=_save)

ATTEND: Any = torch.ops.octopus.attend.default
"""The operator as PyTorch knows it, for who must tell it from others."""


def _pass(
    like: Tensor, slices_S7: Tensor, positions_T: Tensor, pace_R: Tensor | None, name: str
) -> LibraryPass:
    plan = _plans.get(slices_S7)
    if plan is None:
        plan = _plans[slices_S7] = _plan(slices_S7, positions_T)
    return library_pass(name, plan, None if pace_R is None else Rope(inverse_frequencies_R=pace_R), like)


def _tensors(plan: Plan) -> tuple[Tensor, Tensor]:
    if _tensors not in plan.memo:
        rows = [(s.q0, s.q1, s.k0, s.k1, s.causal, s.shift, s.mirrored) for s in plan.slices]
        slices_S7 = torch.tensor(rows, dtype=torch.int64).reshape(-1, 7)
        plan.memo[_tensors] = slices_S7, torch.from_numpy(plan.positions_T)
        _plans[slices_S7] = plan
    made: tuple[Tensor, Tensor] = plan.memo[_tensors]
    return made


def _plan(slices_S7: Tensor, positions_T: Tensor) -> Plan:
    """A plan of given slices; attention reads nothing else of it."""
    rows = len(positions_T)
    return Plan(
        tokens_T=np.zeros(rows, dtype=np.int64),
        positions_T=positions_T.numpy(),
        subtree_ends_T=np.full(rows, rows),
        predecessors_T=np.full(rows, -1),
        slices=tuple(
            Slice(q0=q0, q1=q1, k0=k0, k1=k1, causal=bool(causal), shift=shift, mirrored=bool(mirrored))
            for q0, q1, k0, k1, causal, shift, mirrored in slices_S7.tolist()
        ),
        starts={},
        wait_edges=(),
    )
