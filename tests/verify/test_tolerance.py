"""Tolerances come from measured noise.

Catches a noise that is typed in, that shrinks to nothing, or that a fault could hide under.
"""

from __future__ import annotations

import itertools

import pytest
import torch
from torch import nn

from octopus.verify.margins import HEADROOM, RATIO_NOISE, VISIBLE
from octopus.verify.selftest.bench import Bench
from octopus.verify.selftest.fault import ALL
from octopus.verify.tolerance import SHAKES, Distance, Measured, Yardstick, distance, relative_l2, shake


def rerun(dtype: torch.dtype, seed: int | None = None) -> Measured:
    """A product of many factors, each rounded."""
    weights = nn.Linear(64, 1, bias=False, dtype=torch.float64)
    weights.weight.data = torch.linspace(0.5, 1.5, 64, dtype=torch.float64)
    weights.to(dtype)
    if seed is not None:
        shake(weights, seed)
    x = weights.weight.detach()
    return Measured(outputs_NV=(x * x).cumsum(0)[None], gradients={"w": (2 * x).cumsum(0)})


def test_noise_follows_the_dtype() -> None:
    yardstick = Yardstick(rerun=rerun)
    noises = [yardstick.noise(dtype) for dtype in (torch.float64, torch.float32, torch.bfloat16)]
    for finer, coarser in itertools.pairwise(noises):
        assert 0 < finer.outputs < coarser.outputs / 100
        assert 0 < finer.gradients < coarser.gradients / 100


def test_what_a_library_rounds_in_float64_is_measured() -> None:
    lost = distance(rerun(torch.float32), rerun(torch.float64)).outputs
    rounded = Yardstick(rerun=lambda dtype, seed: rerun(torch.float32), exact=lambda: rerun(torch.float64))
    assert rounded.noise(torch.float64).outputs == lost > 0


def test_a_lucky_rerun_does_not_shrink_the_noise() -> None:
    """Catches: the noise taken from one rerun, which happens to round like the exact one."""
    lucky = Yardstick(rerun=lambda dtype, seed: rerun(torch.float64 if seed is None else torch.float32, seed))
    assert lucky.noise(torch.float32).outputs > torch.finfo(torch.float32).eps / 4


def test_each_dtype_is_computed_once() -> None:
    calls = []

    def counted(dtype: torch.dtype, seed: int | None) -> Measured:
        calls.append((dtype, seed))
        return rerun(dtype, seed)

    yardstick = Yardstick(rerun=counted)
    for _ in range(3):
        yardstick.noise(torch.float64)
    assert calls == [(torch.float64, seed) for seed in (None, *range(SHAKES))]


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32, torch.bfloat16])
def test_shaken_weights_are_neighbours(dtype: torch.dtype) -> None:
    """Catches: weights that stay, or move by more than one number of their dtype."""
    model = nn.Linear(50, 50, dtype=dtype)
    before = [weight.detach().clone() for weight in model.parameters()]
    shake(model, 0)
    for old, new in zip(before, model.parameters(), strict=True):
        moved = (new.detach().double() / old.double() - 1).abs()
        eps = torch.finfo(dtype).eps
        assert (moved >= eps / 2 * 0.99).all() and (moved <= eps * 1.01).all()
        assert (new > old).any() and (new < old).any()


def test_distances_are_relative_and_never_undefined() -> None:
    one = torch.ones(4)
    assert relative_l2(one, one) == 0
    assert relative_l2(2 * one, one) == 1
    assert relative_l2(torch.zeros(4), torch.zeros(4)) == 0
    assert relative_l2(one, torch.zeros(4)) == float("inf")
    assert relative_l2(one * torch.nan, one) == float("inf")
    with pytest.raises(ValueError, match="other parameters"):
        distance(rerun(torch.float64), Measured(outputs_NV=one, gradients={"other": one}))


def test_a_visible_fault_is_beyond_the_headroom() -> None:
    noise = Distance(outputs=1e-3, gradients=1e-2)
    assert Distance(outputs=2e-3, gradients=5e-2).over(noise) == pytest.approx(5)
    assert Distance(outputs=0.0, gradients=0.0).over(Distance(outputs=0.0, gradients=0.0)) == float("inf")
    assert VISIBLE - 2 > HEADROOM > 2


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_the_noise_of_ratios_is_what_the_stacks_of_the_selftest_have(dtype: str) -> None:
    """Catches: a limit that somebody has typed, or loosened so that a finding goes away."""
    largest = []
    for bench in [Bench(name=name) for name in ALL]:
        ours, other = bench.clean(getattr(torch, dtype)), bench.yardstick.expected(getattr(torch, dtype))
        rows, labels = torch.from_numpy(bench.loss.predictors_N), torch.from_numpy(bench.loss.labels_N)
        mine, theirs = (m.outputs_NV.double().log_softmax(-1)[rows, labels] for m in (ours, other))
        largest.append(float(torch.expm1(mine - theirs).abs().max()))
    noise = RATIO_NOISE[dtype]
    assert noise.least == pytest.approx(min(largest), rel=0.5) and noise.most == pytest.approx(max(largest), rel=0.5)
