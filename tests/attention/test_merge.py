"""Merging partial attention results."""

from __future__ import annotations

import itertools
import math

import pytest
import torch
from torch import Tensor

from octopus.attention.merge import merge

INF = math.inf


def attend(scores_HNK: Tensor, v_HKD: Tensor, keys: slice) -> tuple[Tensor, Tensor]:
    """Softmax attention over some of the keys."""
    scores_HNK = scores_HNK[..., keys]
    return torch.softmax(scores_HNK, dim=-1) @ v_HKD[:, keys], torch.logsumexp(scores_HNK, dim=-1)


def problem(dtype: torch.dtype, spread: float = 3.0) -> tuple[Tensor, Tensor]:
    draw = torch.Generator().manual_seed(0)
    scores_HNK = spread * torch.randn(3, 5, 37, generator=draw, dtype=torch.float64)
    return scores_HNK.to(dtype), torch.randn(3, 37, 4, generator=draw, dtype=torch.float64).to(dtype)


@pytest.mark.parametrize("cut", [0, 1, 18, 36, 37])
def test_any_split_gives_the_whole(cut: int) -> None:
    """Catches: an unweighted mean, weights swapped, log-sum-exp in base 2, an empty part that still weighs."""
    scores_HNK, v_HKD = problem(torch.float64)
    merged = merge(*attend(scores_HNK, v_HKD, slice(0, cut)), *attend(scores_HNK, v_HKD, slice(cut, 37)))
    torch.testing.assert_close(merged, attend(scores_HNK, v_HKD, slice(0, 37)), rtol=0, atol=1e-14)


def test_two_keys_and_one_weigh_two_thirds_and_one_third() -> None:
    """Catches: mixing bases (natural log read as base 2 gives 0.73)."""
    two, one = torch.full((1, 1), math.log(2.0)), torch.zeros(1, 1)
    out_HND, lse_HN = merge(torch.ones(1, 1, 1), two, torch.zeros(1, 1, 1), one)
    assert out_HND.item() == pytest.approx(2 / 3, abs=1e-7)
    assert lse_HN.item() == pytest.approx(math.log(3), abs=1e-6)


def test_a_long_prefix_does_not_swallow_one_more_key() -> None:
    """Catches: a suffix weight lost beside 3000 keys of equal score."""
    out_HND, _ = merge(
        torch.zeros(1, 1, 1), torch.full((1, 1), math.log(3000)), torch.ones(1, 1, 1), torch.zeros(1, 1)
    )
    assert out_HND.item() == pytest.approx(1 / 3001, rel=1e-5)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("spread", [3.0, 60.0])
def test_order_does_not_matter(dtype: torch.dtype, spread: float) -> None:
    """Catches: weights normalised by a rounded log-sum-exp (errors of |lse| ulp), a result that prefers one side."""
    scores_HNK, v_HKD = problem(dtype, spread)
    parts = [
        attend(scores_HNK, v_HKD, keys) for keys in (slice(0, 3), slice(3, 4), slice(4, 20), slice(20, 37))
    ]
    results = []
    for order in itertools.permutations(parts):
        total = order[0]
        for part in order[1:]:
            forward, backward = merge(*total, *part), merge(*part, *total)
            assert torch.equal(forward[0], backward[0])
            assert torch.equal(forward[1], backward[1])
            total = forward
        results.append(total)
    ulp = torch.finfo(dtype).eps
    for out_HND, lse_HN in results:
        torch.testing.assert_close(out_HND, results[0][0], rtol=0, atol=4 * ulp * v_HKD.abs().max().item())
        torch.testing.assert_close(lse_HN, results[0][1], rtol=4 * ulp, atol=4 * ulp)


@pytest.mark.parametrize("garbage", [0.0, INF, math.nan])
def test_empty_and_something_is_that_to_the_bit(garbage: float) -> None:
    """Catches: -inf minus -inf, an empty side's output multiplied by 0 instead of left out."""
    scores_HNK, v_HKD = problem(torch.float32)
    out_HND, lse_HN = attend(scores_HNK, v_HKD, slice(0, 37))
    empty = torch.full_like(out_HND, garbage), torch.full_like(lse_HN, -INF)
    for merged in (merge(*empty, out_HND, lse_HN), merge(out_HND, lse_HN, *empty)):
        assert torch.equal(merged[0], out_HND)
        assert torch.equal(merged[1], lse_HN)


def test_empty_and_empty_is_empty() -> None:
    """Catches: 0 / 0, and +inf as a second mark of emptiness. 17 rows reach vector and scalar loops alike."""
    empty = torch.zeros(2, 17, 3), torch.full((2, 17), -INF)
    out_HND, lse_HN = merge(*empty, *empty)
    assert torch.equal(out_HND, empty[0])
    assert torch.equal(lse_HN, empty[1])


def test_rows_are_independent() -> None:
    """Catches: an emptiness test on the whole block instead of each row."""
    scores_HNK, v_HKD = problem(torch.float64)
    out_HND, lse_HN = attend(scores_HNK, v_HKD, slice(0, 37))
    some_HND, some_HN = out_HND.clone(), lse_HN.clone()
    some_HND[:, ::2], some_HN[:, ::2] = 0, -INF
    merged_HND, merged_HN = merge(some_HND, some_HN, out_HND, lse_HN)
    assert torch.equal(merged_HND[:, ::2], out_HND[:, ::2])
    torch.testing.assert_close(merged_HN[:, 1::2], lse_HN[:, 1::2] + math.log(2), rtol=0, atol=1e-14)


@pytest.mark.parametrize("lse", [1e30, -1e30, 88.0, -104.0])
def test_extreme_scores_stay_finite(lse: float) -> None:
    """Catches: exponentials that are not taken relative to the larger side."""
    lse_HN = torch.full((1, 1), lse)
    out_HND, merged_HN = merge(torch.ones(1, 1, 1), lse_HN, torch.zeros(1, 1, 1), lse_HN)
    assert out_HND.item() == 0.5
    assert merged_HN.item() == pytest.approx(lse + math.log(2), rel=1e-6)


def test_a_visible_nan_is_not_hidden() -> None:
    """Catches: `nan_to_num` as the cure for empty rows, which would swallow a NaN."""
    out_HND, lse_HN = merge(torch.full((1, 1, 1), math.nan), torch.full((1, 1), math.nan), torch.ones(1, 1, 1),
                            torch.zeros(1, 1))  # fmt: skip
    assert out_HND.isnan().all()
    assert lse_HN.isnan().all()
