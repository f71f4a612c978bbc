"""Paged attention by our kernels against one softmax a row in float64, in Triton's interpreter.

A program of its own, as the interpreter is chosen when Triton is imported. Prints the largest difference of each case.
"""

from __future__ import annotations

import os

os.environ["TRITON_INTERPRET"] = "1"

import sys
from functools import partial

import numpy as np
import torch

from octopus.attention.dag import paged
from octopus.attention.dag.groups import Sight
from octopus.attention.dag.paged import PagedPass, TileShape
from octopus.attention.dag.tiles import Costs
from octopus.attention.rope import Rope, apply_rope

PAGE = 4
SMALL = TileShape(few_m=16, many_m=32, block=PAGE, singles=8, warps=4, stages=1)
"""Here a page is a block, and a step of a few rows has several tiles."""


class Pool:
    """Segments with pages of a pool, in any order; the rest of the pool is NaN."""

    def __init__(self, seed: int, lengths: list[int], kv_heads: int, dim: int) -> None:
        draw = torch.Generator().manual_seed(seed)
        pages = [-(-length // PAGE) for length in lengths]
        order = torch.randperm(sum(pages) + 3, generator=draw).numpy()
        self.keys, self.values = (torch.full((len(order) * PAGE, kv_heads, dim), torch.nan) for _ in range(2))
        self.slots = []
        for length, first, count in zip(lengths, np.cumsum([0, *pages]), pages, strict=False):
            slots = (order[first : first + count, None] * PAGE + np.arange(PAGE)).ravel()[:length]
            self.slots.append(slots.astype(np.int64))
            for store in (self.keys, self.values):
                store[torch.from_numpy(self.slots[-1])] = torch.randn(length, kv_heads, dim, generator=draw)

    def slots_of(self, segment: object, start: int, stop: int) -> np.ndarray:
        return self.slots[segment][start:stop]


def expected(q_HTD, pool, sights, positions_T, rope, scale):
    heads, rows, dim = q_HTD.shape
    out, lse = torch.zeros(heads, rows, dim, dtype=torch.float64), torch.full((heads, rows), -torch.inf).double()
    share = heads // pool.keys.shape[1]
    for row in range(rows):
        scores, values = [], []
        for sight in sights:
            if not sight.row <= row < sight.row + sight.rows:
                continue
            stop = sight.stop - (sight.rows - 1 - (row - sight.row)) if sight.causal else sight.stop
            slots = torch.from_numpy(pool.slots[sight.segment][sight.start : stop])
            at = torch.tensor([positions_T[row] - sight.shift])
            q_H1D = apply_rope(rope, q_HTD[:, row : row + 1].double(), at)
            k_HKD = pool.keys[slots].double().transpose(0, 1).repeat_interleave(share, 0)
            scores.append(q_H1D @ k_HKD.mT * scale)
            values.append(pool.values[slots].double().transpose(0, 1).repeat_interleave(share, 0))
        if scores and (all_scores := torch.cat(scores, -1)).shape[-1]:
            out[:, row] = (all_scores.softmax(-1) @ torch.cat(values, 1))[:, 0]
            lse[:, row] = all_scores.logsumexp(-1)[:, 0]
    return out, lse


def random_case(seed: int) -> tuple[list[int], list[Sight], np.ndarray]:
    """Threads that share prefixes of segments, mount parts of others at shifts, and decode or prefill."""
    draw = np.random.default_rng(seed)
    lengths = [int(draw.integers(0, 40)) for _ in range(5)]
    sights: list[Sight] = []
    row = 0
    for _ in range(int(draw.integers(1, 6))):
        rows = int(draw.choice([1, 1, 3, 18]))
        for segment in range(5):
            if draw.random() < 0.6:
                start, stop = sorted(draw.integers(0, lengths[segment] + 1, 2).tolist())
                start = 0 if draw.random() < 0.5 else start
                shift = int(draw.choice([0, 0, 7, -3]))
                sights.append(Sight(segment, start, stop, shift, row, rows))
        if draw.random() < 0.85:
            own = len(lengths)
            lengths.append(int(draw.integers(0, 20)) + rows)
            sights.append(Sight(own, 0, lengths[own], 0, row, rows, True))
        row += rows
    return lengths, sights, draw.integers(0, 500, row)


def check(seed: int, heads: int, kv_heads: int, dim: int, rotary: int, programs: int) -> float:
    lengths, sights, positions_T = random_case(seed)
    pool = Pool(seed, lengths, kv_heads, dim)
    rope = Rope(inverse_frequencies_R=100.0 ** -torch.arange(rotary // 2, dtype=torch.float64)) if rotary else None
    q_HTD = torch.randn(len(positions_T), heads, dim, generator=torch.Generator().manual_seed(seed)).transpose(0, 1)
    out, lse = expected(q_HTD, pool, sights, positions_T, rope, 0.3)
    made = PagedPass.of(
        sights, pool.slots_of, positions_T, rope=rope, heads=heads, kv_heads=kv_heads, head_dim=dim,
        device=torch.device("cpu"), programs=programs,
    )  # fmt: skip
    got, got_lse = made.attend(q_HTD, pool.keys, pool.values, scale=0.3)
    assert torch.equal(got_lse == -torch.inf, lse == -torch.inf)
    seen = lse > -torch.inf
    assert not got.transpose(0, 1)[~seen.T.all(1)].any()
    return float(torch.cat([(got - out).flatten(), (got_lse - lse)[seen]]).abs().max())


if __name__ == "__main__":
    paged.tile_shape = lambda head_dim: SMALL
    paged.Costs = partial(Costs, fewest_keys=5)
    for seed in range(int(sys.argv[1]) if len(sys.argv) > 1 else 20):
        for heads, kv_heads, dim, rotary in ((4, 1, 16, 8), (6, 2, 24, 24), (2, 2, 16, 0)):
            worst = check(seed, heads, kv_heads, dim, rotary, programs=1 if seed % 2 else 10**9)
            print(seed, heads, kv_heads, dim, rotary, worst, flush=True)
