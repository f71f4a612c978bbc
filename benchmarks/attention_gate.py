"""Whether a backend computes attention: errors against float64, beside those of cuDNN's dense kernel on the same data.

The baseline runs each thread's row of text through PyTorch's SDPA on cuDNN, in the same bfloat16, and adds up the
gradients of shared tokens in float64. A relative error is the norm of the difference over that of the float64 result.
Windowed plans have no such rows: they are held to the rounding of bfloat16.

Letters: T rows, H query heads, G key/value heads, D head dimension, N rows of one thread's text.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

import numpy as np
import torch
from attention_cases import QUERY_HEADS, plan_of, rope_of, thread_rows, without_shifts
from numeric import causal_plan, random_plan
from torch import Tensor
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.nn.functional import scaled_dot_product_attention

from octopus.attention.backends import attend
from octopus.attention.exports import dense_view
from octopus.attention.plan import Plan
from octopus.attention.rope import Rope
from octopus.attention.windowed import windowed

RESULTS = ("out", "dq", "dk", "dv")
ROUNDING = 2.0**-7
"""What no error may reach where cuDNN's kernel has none to compare with: one unit of bfloat16's last place."""
WINDOWS = (127, 1_000)  # Narrower ones are thousands of slices, and tested without a GPU.


@dataclass(frozen=True, kw_only=True, eq=False)
class Data:
    """One problem: `inputs` are q, k, v and the gradient of the output."""

    plan: Plan
    rope: Rope | None
    inputs: tuple[Tensor, Tensor, Tensor, Tensor]

    @property
    def scale(self) -> float:
        """Of the scores."""
        return self.inputs[0].shape[-1] ** -0.5


def draw(plan: Plan, head_dim: int, kv_heads: int, device: str, *, rotated: bool, dtype: torch.dtype) -> Data:
    """Random data, laid out as a model's projections give them: rows outermost in memory."""
    heads = (QUERY_HEADS, kv_heads, kv_heads, QUERY_HEADS)
    q, k, v, d_out = (
        torch.randn(plan.length, n, head_dim, device=device, dtype=dtype).transpose(0, 1) for n in heads
    )
    return Data(plan=plan, rope=rope_of(head_dim, device) if rotated else None, inputs=(q, k, v, d_out))


def by_backend(data: Data, backend: str) -> tuple[Tensor, ...]:
    """`out`, `dq`, `dk`, `dv`, and `lse`."""
    leaves = [x.detach().requires_grad_() for x in data.inputs[:3]]
    out, lse = attend(*leaves, plan=data.plan, rope=data.rope, scale=data.scale, backend=backend)
    return (out.detach(), *torch.autograd.grad(out, leaves, data.inputs[3]), lse)


def in_float64(data: Data) -> tuple[Tensor, ...]:
    """The same from the dense mask, one matrix a shift; written for this gate."""
    visible, seen_at = dense_view(data.plan)
    device = data.inputs[0].device
    q, k, v = (x.detach().double().requires_grad_() for x in data.inputs[:3])
    group = len(q) // len(k)
    positions_T = torch.from_numpy(data.plan.positions_T).to(device)
    scores = torch.full((len(q), data.plan.length, data.plan.length), -torch.inf, device=device, dtype=q.dtype)
    shifts = seen_at - data.plan.positions_T[None]
    for shift in np.unique(shifts[visible]).tolist() if visible.any() else []:
        here = torch.from_numpy((shifts == shift) & visible).to(device)
        turned_q, turned_k = q, k
        if data.rope is not None:
            turned_q, turned_k = data.rope.rotate(q, positions_T), data.rope.rotate(k, positions_T + shift)
        scores = torch.where(here, turned_q @ turned_k.repeat_interleave(group, 0).mT * data.scale, scores)
    lse = scores.detach().logsumexp(-1)
    shown = torch.from_numpy(visible).to(device)
    weights = torch.where(shown, (scores - torch.where(lse.isinf(), 0, lse)[..., None]).exp(), 0.0)
    out = (weights / weights.sum(-1, keepdim=True).clamp(min=1e-300)) @ v.repeat_interleave(group, 0)
    gradients = torch.autograd.grad(out, (q, k, v), data.inputs[3].double())
    return (out.detach(), *gradients, lse)


def by_rows(data: Data) -> tuple[Tensor, ...]:
    """`out`, `dq`, `dk`, `dv` in float64, from cuDNN's causal kernel on each thread's row."""
    q, k, v, d_out = (x.detach() for x in data.inputs)
    out, dq, dk, dv = (torch.zeros_like(x, dtype=torch.float64) for x in (q, q, k, v))
    for row in thread_rows(data.plan):
        rows_N = torch.from_numpy(row.rows_N).to(q.device)
        own_N, own = rows_N[-row.own :], slice(len(rows_N) - row.own, None)
        leaves = [x.index_select(1, rows_N).requires_grad_() for x in (q, k, v)]
        turned = leaves
        if data.rope is not None:
            positions_N = torch.from_numpy(row.positions_N).to(q.device)
            turned = [data.rope.rotate(x, positions_N).to(x.dtype) for x in leaves[:2]] + leaves[2:]
        row_out = _causal(*turned)
        d_row = torch.zeros_like(row_out)
        d_row[:, own] = d_out[:, own_N]
        row_dq, row_dk, row_dv = torch.autograd.grad(row_out, leaves, d_row)
        out[:, own_N], dq[:, own_N] = row_out.detach()[:, own].double(), row_dq[:, own].double()
        dk.index_add_(1, rows_N, row_dk.double())
        dv.index_add_(1, rows_N, row_dv.double())
    return out, dq, dk, dv


def _causal(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    ways = [SDPBackend.CUDNN_ATTENTION] if q.is_cuda and q.shape[1] > 1 else [SDPBackend.MATH]
    with sdpa_kernel(ways):
        return scaled_dot_product_attention(q[None], k[None], v[None], is_causal=True, enable_gqa=True)[0]


def relative(found: Tensor, expected: Tensor, floor: float) -> float:
    """Norm of the difference over the norm expected, or over `floor` where that is larger."""
    return float((found.double() - expected).norm() / max(float(expected.norm()), floor))


@dataclass(frozen=True, kw_only=True)
class Check:
    """One gate: whether it holds, and what was found."""

    name: str
    holds: bool
    found: str


def gate_plans(small: bool) -> Iterator[tuple[str, Plan, bool]]:
    """`(name, plan, whether it is rotated)`."""
    cut = 4 if small else 1
    paper = plan_of("paper-143k", 64 * cut if small else 32)
    yield "paper-143k", without_shifts(paper), False
    yield "paper-143k-shifted", paper, True
    yield "ragged-143k-shifted", plan_of("ragged-143k", 128 * cut), True
    yield "wide", plan_of("wide", 8 * cut), True
    yield "deep", plan_of("deep", 8 * cut), True
    for window in WINDOWS:
        yield f"paper-143k-window-{window}", windowed(paper, window), True
    for rows in (1, 15, 17, 127, 129):
        yield f"rows-{rows}", causal_plan(rows, start_position=70_000), True
    for seed in (1, 2, 3):  # Rows that see nothing, sources after readers, negative shifts.
        yield f"random-{seed}", random_plan(seed, segments=12, longest=60), True


def errors(name: str, data: Data, backend: str) -> Check:
    """Errors of outputs and all gradients, and of the LSE, against float64."""
    expected, found = in_float64(data), by_backend(data, backend)
    floor = 1e-3 * float(data.inputs[3].double().norm())
    ours = [relative(a, b, floor) for a, b in zip(found[:4], expected[:4], strict=True)]
    has_rows = not any(s.mirrored for s in data.plan.slices) and data.plan.length > 1
    base = [relative(a, b, floor) for a, b in zip(by_rows(data), expected[:4], strict=True)] if has_rows else [0.0] * 4
    ratio = 1.5 if data.rope is not None else 1.3
    compared = has_rows and data.inputs[0].is_cuda
    bounds = [ratio * b if compared else ROUNDING for b in base]
    blind = expected[4].isinf()
    lse_right = bool((found[4].isinf() == blind).all()) and bool(
        (found[4].double() - expected[4])[~blind].abs().max() < 2e-2
    )
    at_rest = bool((found[0][blind] == 0).all() and (found[1][blind] == 0).all())
    return Check(
        name=f"{name}: at most {f'{ratio} times cuDNN errors' if compared else 'the rounding of bfloat16'}",
        holds=all(a <= b for a, b in zip(ours, bounds, strict=True)) and lse_right and at_rest,
        found=" ".join(f"{n} {a:.2e} ({b:.2e})" for n, a, b in zip(RESULTS, ours, base, strict=True))
        + f" lse {'right' if lse_right else 'WRONG'}, {int(blind[0].sum())} rows see nothing",
    )


def poison(data: Data, backend: str) -> Check:
    """Large finite values change no bit of rows that do not see them; a NaN that nobody sees changes nothing."""
    visible = torch.from_numpy(dense_view(data.plan)[0]).to(data.inputs[0].device)
    clean = by_backend(data, backend)[0]
    wrong = []
    unseen = [key for key in range(data.plan.length) if not visible[:, key].any()]
    for key in [*range(0, data.plan.length, 1 + data.plan.length // 12), *unseen[:3]]:
        q, k, v, d_out = (x.clone() for x in data.inputs)
        seen_by_nobody = not visible[:, key].any()
        k[:, key] = v[:, key] = torch.nan if seen_by_nobody else 1e4
        again = by_backend(replace(data, inputs=(q, k, v, d_out)), backend)
        rows = ~visible[:, key]
        if not torch.equal(again[0][:, rows], clean[:, rows]):
            wrong.append(f"key {key} reaches rows that do not see it")
        if seen_by_nobody and any(x.isnan().any() for x in again[:4]):
            wrong.append(f"a NaN in key {key}, which nobody sees, comes out")
    return Check(name="poison", holds=not wrong and bool(unseen), found="; ".join(wrong) or f"{len(unseen)} unseen")


def repeats(data: Data, backend: str, times: int) -> Check:
    """The same bits, output and gradients, under PyTorch's deterministic switch."""
    torch.use_deterministic_algorithms(True, warn_only=True)
    try:
        first = by_backend(data, backend)
        same = sum(all(map(torch.equal, by_backend(data, backend), first)) for _ in range(times))
    finally:
        torch.use_deterministic_algorithms(False)
    return Check(name="deterministic", holds=same == times, found=f"{same} of {times} runs equal the first")
