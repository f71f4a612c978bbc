"""Other ways to compute the same attention, or what it would cost without sharing; each with its forward and backward.

They get queries and keys as if rotated: rotation is not in their time. FlexAttention and cuDNN-frontend know no shifts.

Letters: T rows, H query heads, G key/value heads, D head dimension, E endpoints.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from attention_gate import Data
from torch import Tensor
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.nn.attention.flex_attention import BlockMask, flex_attention
from torch.nn.functional import scaled_dot_product_attention

from octopus.attention.exports import dense_view
from octopus.attention.plan import Plan

Way = Callable[[], tuple[Callable[[], object], Callable[[], object]]]
"""Prepares, and gives what runs forward and what runs backward."""

BLOCK = 128


def timed_pair(out: Tensor, leaves: list[Tensor], forward: Callable[[], object]) -> tuple[Any, Any]:
    """The forward, and the backward of an output computed before."""
    d_out = torch.randn_like(out)
    return forward, lambda: torch.autograd.grad(out, leaves, d_out, retain_graph=True)


def leaves_of(data: Data) -> list[Tensor]:
    """q, k, v as `[1, heads, T, D]` leaves."""
    return [x.detach()[None].requires_grad_() for x in data.inputs[:3]]


def flex(data: Data) -> tuple[Any, Any]:
    """FlexAttention, compiled, with a block mask of 128 made from the plan's intervals. Shifts are left out."""
    mask = block_mask(data.plan, data.inputs[0].device)
    compiled = torch.compile(flex_attention, dynamic=False) if data.inputs[0].is_cuda else flex_attention
    leaves = leaves_of(data)

    def forward() -> Tensor:
        return compiled(*leaves, block_mask=mask, enable_gqa=True)

    return timed_pair(forward(), leaves, forward)


def block_mask(plan: Plan, device: torch.device) -> BlockMask:
    """Full and partial blocks from the slices, and the mask of a pair from its segments' intervals."""
    squares = sorted((s.q0, s.q1) for s in plan.slices if s.causal)
    segment_T = torch.from_numpy(np.repeat(np.arange(len(squares)), [b - a for a, b in squares])).to(device)
    first, last = (torch.zeros(len(squares), len(squares), dtype=torch.int32) for _ in range(2))
    starts = np.array([a for a, _ in squares])
    for s in (s for s in plan.slices if not s.causal):
        reader = range(np.searchsorted(starts, s.q0), np.searchsorted(starts, s.q1))
        for source in range(np.searchsorted(starts, s.k0, side="right") - 1, np.searchsorted(starts, s.k1)):
            a, b = squares[source]
            first[reader, source], last[reader, source] = max(s.k0, a), min(s.k1, b)
    first, last = first.to(device), last.to(device)

    def sees(batch: Tensor, head: Tensor, q: Tensor, k: Tensor) -> Tensor:
        reader, source = segment_T[q], segment_T[k]
        inside = (k >= first[reader, source]) & (k < last[reader, source])
        return ((reader == source) & (k <= q)) | inside

    seen, whole = _blocks(plan)
    lists = [_listed(x.to(device)) for x in (seen & ~whole, whole)]
    return BlockMask.from_kv_blocks(
        *lists[0], *lists[1], BLOCK_SIZE=BLOCK, mask_mod=sees, seq_lengths=(plan.length, plan.length)
    )


def _blocks(plan: Plan) -> tuple[Tensor, Tensor]:
    """Which blocks hold a visible pair, and which only such; by counting pairs."""
    side = -(-plan.length // BLOCK)
    pairs = torch.zeros(side, side, dtype=torch.int64)
    edges = np.arange(side + 1) * BLOCK
    for s in plan.slices:
        rows = np.clip(edges, s.q0, s.q1)
        if s.causal:
            for block in range(s.q0 // BLOCK, -(-s.q1 // BLOCK)):
                a, b = rows[block], rows[block + 1]
                before = np.diff(np.clip(edges, s.k0, a))
                pairs[block] += torch.from_numpy(before * (b - a))
                pairs[block, block] += int((b - a) * (b - a + 1) // 2)
        else:
            keys = np.diff(np.clip(edges, s.k0, s.k1))
            pairs += torch.from_numpy(np.diff(rows)[:, None] * keys[None])
    return pairs > 0, pairs == BLOCK * BLOCK


def _listed(chosen: Tensor) -> tuple[Tensor, Tensor]:
    counts = chosen.sum(-1, dtype=torch.int32)
    order = torch.argsort(chosen.int(), dim=-1, descending=True, stable=True).int()
    return counts[None, None], order[None, None]


def interval(data: Data) -> tuple[Any, Any]:
    """cuDNN-frontend's flexible attention as its users call it: through its own autograd function, shifts left out."""
    from cudnn.flex_attention import create_mask_plan, flex_attn_func

    from octopus.attention.libraries.intervals import row_endpoints
    from octopus.attention.libraries.key_table import key_table

    ends_1ET = torch.from_numpy(row_endpoints(key_table(data.plan, rotates=False)))[None].to(data.inputs[0].device)
    leaves = [x.detach().transpose(0, 1).contiguous()[None].requires_grad_() for x in data.inputs[:3]]
    plan = create_mask_plan(ends_1ET.contiguous(), *leaves)

    def forward() -> Tensor:
        return flex_attn_func(*leaves, mask_plan=plan)

    return timed_pair(forward(), leaves, forward)


def sdpa_row(length: int, data: Data) -> tuple[Any, Any]:
    """One causal row through cuDNN."""
    q, k, _, _ = data.inputs
    leaves = [
        torch.randn(1, n, length, q.shape[-1], device=q.device, dtype=q.dtype, requires_grad=True)
        for n in (len(q), len(k), len(k))
    ]

    def forward() -> Tensor:
        with sdpa_kernel([SDPBackend.CUDNN_ATTENTION if q.is_cuda else SDPBackend.MATH]):
            return scaled_dot_product_attention(*leaves, is_causal=True, enable_gqa=True)

    return timed_pair(forward(), leaves, forward)


def dense_fa4(length: int, data: Data) -> tuple[Any, Any]:
    """One dense causal row through FlashAttention-4."""
    from flash_attn.cute import flash_attn_func

    q, k, _, _ = data.inputs
    leaves = [
        torch.randn(1, length, n, q.shape[-1], device=q.device, dtype=q.dtype, requires_grad=True)
        for n in (len(q), len(k), len(k))
    ]

    def forward() -> Tensor:
        out = flash_attn_func(*leaves, causal=True)
        return out[0] if isinstance(out, tuple) else out

    return timed_pair(forward(), leaves, forward)


def hidden_pairs_wrong(plan: Plan) -> int:
    """Pairs on which the block mask and the plan differ; for small plans."""
    mask = block_mask(plan, torch.device("cpu"))
    rows = torch.arange(plan.length)
    seen = mask.mask_mod(torch.tensor(0), torch.tensor(0), rows[:, None], rows[None])
    return int((seen != torch.from_numpy(dense_view(plan)[0])).sum())
