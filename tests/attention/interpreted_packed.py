"""Packed attention by our kernels against the float64 reference, in Triton's interpreter.

A program of its own, as the interpreter is chosen when Triton is imported. Prints the largest difference of each case:
output, log-sum-exp, and the three gradients.
"""

from __future__ import annotations

import os

os.environ["TRITON_INTERPRET"] = "1"

import sys

import torch
from numeric import random_plan
from random_graphs import random_episode

from octopus.attention.dag import packed
from octopus.attention.dag.packed import Blocks, KernelTable
from octopus.attention.exports import dense_view
from octopus.attention.libraries.kernel import LibraryPass
from octopus.attention.plan import Plan, lower
from octopus.attention.reference import attend_reference
from octopus.attention.rope import Rope
from octopus.attention.windowed import windowed

SHORT, LONG = (Blocks(other=rows, rest=16, warps=4, stages=1) for rows in (16, 32))
SMALL = KernelTable(own=16, forward=SHORT, queries=LONG, keys=SHORT, values=LONG)


def check(plan: Plan, seed: int, heads: int, kv_heads: int, dim: int, rotary: int) -> list[float]:
    draw = torch.Generator().manual_seed(seed)
    rope = (
        Rope(inverse_frequencies_R=100.0 ** -torch.arange(rotary // 2, dtype=torch.float64))
        if rotary
        else None
    )
    shapes = [(heads, plan.length, dim), *2 * [(kv_heads, plan.length, dim)]]
    inputs = [torch.randn(shape, generator=draw) for shape in shapes]
    d_out = torch.randn(shapes[0], generator=draw)
    exact = [x.double().requires_grad_() for x in inputs]
    out, lse = attend_reference(*exact, plan=plan, rope=rope, scale=0.3)
    gradients = torch.autograd.grad(out, exact, d_out.double())
    hidden_T = torch.from_numpy(~dense_view(plan)[0].any(0))
    inputs[1:] = (x.masked_fill(hidden_T[:, None], torch.nan) for x in inputs[1:])
    made = LibraryPass.of("triton", plan, rope, torch.device("cpu"), torch.float32, dim)
    got, got_lse = made.forward(*inputs, 0.3)
    seen = lse > -torch.inf
    assert torch.equal(got_lse > -torch.inf, seen)
    ours = made.backward(d_out, *inputs, got, got_lse, 0.3)
    assert not hidden_T.any() or not any(x[:, hidden_T].any() for x in ours[1:])
    differences = [got - out, (got_lse - lse)[seen], *(a - b for a, b in zip(ours, gradients, strict=True))]
    return [float(x.detach().abs().max()) if x.numel() else 0.0 for x in differences]


if __name__ == "__main__":
    packed.kernel_table = lambda head_dim: SMALL
    for seed in range(int(sys.argv[1]) if len(sys.argv) > 1 else 4):
        packed.MOST_CELLS = (200, 1 << 22)[seed % 2]
        episode = lower(random_episode(seed, size=50).graph.segments)
        for plan in (random_plan(seed), windowed(episode, 7) if seed % 2 else episode):
            for heads, kv_heads, dim, rotary in ((4, 1, 16, 8), (2, 2, 16, 16), (2, 1, 32, 0)):
                worst = check(plan, seed, heads, kv_heads, dim, rotary)
                print(seed, plan.length, heads, dim, rotary, *worst, flush=True)
