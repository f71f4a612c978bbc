"""The token loss against a loop over tokens.

Catches: clip bounds exchanged; the maximum taken for the minimum; a wrong sign; a mean where the denominator is given;
a clipped token that still carries a gradient; an exponential that overflows; imitation that looks at who sampled.
"""

import math

import pytest
import torch

from octopus.train.losses import TokenTerms, grpo, likelihood

CLIP_LOW, CLIP_HIGH = 0.2, 0.3


def by_hand(new: list[float], old: list[float], advantages: list[float], denominator: float) -> float:
    """The formula, one token at a time."""
    total = 0.0
    for log_new, log_old, advantage in zip(new, old, advantages, strict=True):
        ratio = math.exp(log_new - log_old)
        clipped = min(max(ratio, 1 - CLIP_LOW), 1 + CLIP_HIGH)
        total -= min(ratio * advantage, clipped * advantage)
    return total / denominator


def run(new: list[float], old: list[float], advantages: list[float], denominator: float = 1.0):
    """Returns the loss and the gradient of each log-probability."""
    log_probabilities = torch.tensor(new, dtype=torch.float64, requires_grad=True)
    terms = TokenTerms(
        log_probabilities_N=log_probabilities,
        sampled_log_probabilities_N=torch.tensor(old, dtype=torch.float64),
        advantages_N=torch.tensor(advantages, dtype=torch.float64),
    )
    result = grpo(terms, clip_low=CLIP_LOW, clip_high=CLIP_HIGH, denominator=denominator)
    result.loss.backward()
    return result, log_probabilities.grad.tolist()


def test_equals_the_loop() -> None:
    torch.manual_seed(0)
    new, old = (-3 * torch.rand(2, 200, dtype=torch.float64)).tolist()
    advantages = torch.randn(200, dtype=torch.float64).tolist()
    result, _ = run(new, old, advantages, denominator=37)
    assert result.loss.item() == pytest.approx(by_hand(new, old, advantages, 37), rel=1e-12)


def test_on_policy_gradient_is_the_advantage_over_the_denominator() -> None:
    _, gradient = run([-1.0, -2.0], [-1.0, -2.0], [0.5, -0.25], denominator=4)
    assert gradient == [-0.125, 0.0625]


@pytest.mark.parametrize(
    ("ratio", "advantage", "clipped"),
    [(1.29, 1.0, 0), (1.31, 1.0, 1), (0.79, 1.0, 0), (0.81, -1.0, 0), (0.79, -1.0, 1), (1.31, -1.0, 0)],
)
def test_a_token_is_clipped_only_where_it_went_too_far(ratio: float, advantage: float, clipped: int) -> None:
    result, (gradient,) = run([math.log(ratio)], [0.0], [advantage])
    assert result.clipped == clipped
    assert (gradient == 0.0) == bool(clipped)


@pytest.mark.parametrize("advantage", [0.0, 1.0, -1.0])
def test_a_huge_ratio_stays_finite(advantage: float) -> None:
    result, (gradient,) = run([0.0], [-800.0], [advantage])
    assert math.isfinite(result.loss.item())
    assert math.isfinite(gradient)


def test_no_tokens_cost_nothing() -> None:
    result, gradient = run([], [], [])
    assert result.loss.item() == 0.0
    assert gradient == []


def test_likelihood_is_the_mean_negative_log_probability_whoever_sampled() -> None:
    log_probabilities = torch.tensor([-1.0, -2.0, -6.0], dtype=torch.float64, requires_grad=True)
    terms = TokenTerms(
        log_probabilities_N=log_probabilities,
        sampled_log_probabilities_N=torch.full((3,), math.nan),
        advantages_N=torch.ones(3, dtype=torch.float64),
    )
    result = likelihood(terms, denominator=3)
    result.loss.backward()
    assert result.loss.item() == 3.0
    assert result.clipped == 0
    assert log_probabilities.grad.tolist() == pytest.approx([-1 / 3] * 3)
