"""The pointwise kernels against plain torch, in Triton's interpreter; prints the largest difference of each case.

A program of its own, as the interpreter is chosen when Triton is imported.
"""

from __future__ import annotations

import itertools
import os

os.environ["TRITON_INTERPRET"] = "1"

import numpy as np
import torch

from octopus.attention.libraries import kernels
from octopus.attention.libraries.rows import Angles, joined, sum_rotated
from octopus.attention.rope import Rope


def laid(x_HND: torch.Tensor, rows_first: bool) -> torch.Tensor:
    """The same values, rows or heads outermost in memory."""
    return x_HND.transpose(0, 1).contiguous().transpose(0, 1) if rows_first else x_HND.contiguous()


def check_rotate(count: int, dim: int, rotary: int, parts: int, gather: bool, back: bool) -> float:
    draw = torch.Generator().manual_seed(count)
    rope = Rope(inverse_frequencies_R=100.0 ** -torch.arange(rotary // 2, dtype=torch.float64))
    angles = Angles.of(rope, np.arange(count) * 7 - 5, torch.device("cpu"), torch.float32)
    xs = [laid(torch.randn(3, count + 4, dim, generator=draw), bool(i % 2)) for i in range(parts)]
    rows_N = torch.randperm(count + 4, generator=draw)[:count] if gather else None
    xs = xs if gather else [x[:, :count] for x in xs]
    expected = sum_rotated(xs, angles, out_HND=torch.empty(3, count, dim), rows_N=rows_N, back=back)
    actual = laid(torch.full((3, count, dim), torch.nan), True)
    kernels.rotate(xs, actual[None], angles.cos_NR, angles.sin_NR, rows_N, -1 if back else 1)
    return float((actual - expected).abs().max())


def check_join(count: int, dim: int, parts: int) -> float:
    draw = torch.Generator().manual_seed(count + parts)
    outs = [laid(torch.randn(3, count, dim, generator=draw), bool(i % 2)) for i in range(parts)]
    lses = [torch.randn(3, count + 2, generator=draw)[:, :count] * 9 for _ in range(parts)]
    for out, lse in zip(outs, lses, strict=True):
        empty = torch.rand(3, count, generator=draw) < 0.4
        lse.masked_fill_(empty, -torch.inf)
        out.masked_fill_(empty[..., None], torch.nan)
    found = list(zip(outs, lses, strict=True))
    expected, expected_lse = torch.empty(3, count, dim), torch.empty(3, count)
    joined(found, out_HND=expected, lse_HN=expected_lse)
    actual, lse = laid(torch.full((3, count, dim), torch.nan), True), torch.full((3, count), torch.nan)
    kernels.join(found, actual, lse)
    assert torch.equal(lse == -torch.inf, expected_lse == -torch.inf)
    seen = lse > -torch.inf
    differences = torch.cat([(actual - expected).flatten(), (lse - expected_lse)[seen]])
    return float(differences.abs().max())


if __name__ == "__main__":
    WAYS = ((1, True, False), (1, False, True), (2, False, True), (4, False, True))
    for count, (dim, rotary) in itertools.product((1, 17, 40), ((8, 8), (24, 8), (16, 0))):
        for parts, gather, back in WAYS:
            worst = check_rotate(count, dim, rotary, parts, gather, back)
            print("rotate", count, dim, rotary, parts, gather, back, worst)
        for parts in (1, 2, 3, 4):
            print("join", count, dim, parts, check_join(count, dim, parts))
