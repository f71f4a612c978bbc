"""The mask that our kernels really apply, probed on random graphs, in Triton's interpreter.

A program of its own, as the interpreter is chosen when Triton is imported. Takes the number of graphs; prints for each
how many pairs of the packed and of the paged kernels differ from the plan, and how many there are.
"""

from __future__ import annotations

import os

os.environ["TRITON_INTERPRET"] = "1"

import sys

import numpy as np
import torch
from random_graphs import random_episode
from torch import Tensor

from octopus.attention.dag import packed
from octopus.attention.dag.groups import Sight
from octopus.attention.dag.packed import Blocks, KernelTable
from octopus.attention.dag.paged import PagedPass
from octopus.attention.exports import dense_view
from octopus.attention.libraries.kernel import LibraryPass
from octopus.attention.plan import Plan, lower
from octopus.verify.probe import Shape, probe

CPU = torch.device("cpu")
SMALL = Blocks(other=16, rest=16, warps=4, stages=1)


def packed_pairs(plan: Plan, shape: Shape) -> np.ndarray:
    made = LibraryPass.of("triton", plan, None, CPU, shape.dtype, shape.head_dim)
    return probe(lambda q, k, v: made.forward(q, k, v, 1.0), shape).seen_HNK[0]


def paged_pairs(plan: Plan, shape: Shape) -> np.ndarray:
    """The plan's rows as a step over a pool that holds the plan's keys: every slice is a sight of one segment."""
    sights = [
        Sight("row", s.k0, s.k1, s.shift, s.q0, s.q1 - s.q0, s.causal)
        for s in plan.slices
        if s.q0 < s.q1 and s.k0 < s.k1
    ]
    made = PagedPass.of(
        sights, lambda _, start, stop: np.arange(start, stop), plan.positions_T, rope=None, heads=shape.heads,
        kv_heads=shape.kv_heads, head_dim=shape.head_dim, device=CPU, programs=8,
    )  # fmt: skip

    def attention(q_HND: Tensor, k_GKD: Tensor, v_GKD: Tensor) -> tuple[Tensor, Tensor]:
        return made.attend(q_HND, *(x.transpose(0, 1).contiguous() for x in (k_GKD, v_GKD)), scale=1.0)

    return probe(attention, shape).seen_HNK[0]


def differences(seed: int) -> list[int]:
    plan = lower(random_episode(seed, size=30).graph.segments)
    shape = Shape(
        heads=2, kv_heads=1, queries=plan.length, keys=plan.length, head_dim=32, dtype=torch.float32
    )
    seen_TT, _ = dense_view(plan)
    wrong = [int((pairs(plan, shape) != seen_TT).sum()) for pairs in (packed_pairs, paged_pairs)]
    return [*wrong, int(seen_TT.sum())]


if __name__ == "__main__":
    packed.kernel_table = lambda head_dim: KernelTable(
        own=16, forward=SMALL, queries=SMALL, keys=SMALL, values=SMALL
    )
    for seed in range(int(sys.argv[1])):
        print(seed, *differences(seed), flush=True)
