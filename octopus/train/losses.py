"""Policy losses over sampled tokens.

Letters: N sampled tokens with a loss term. Tokens without one never get here, so nothing has to be masked away.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

LOG_RATIO_LIMIT = 20.0
"""exp of 89 overflows float32, and 0 * inf would poison the weights. A ratio that far out is clipped or lost anyway."""


@dataclass(frozen=True, kw_only=True, slots=True)
class TokenTerms:
    """What a token loss needs to know.

    Attributes:
        log_probabilities_N: Natural log, under the policy being trained. Carries the gradient.
        sampled_log_probabilities_N: The same under the policy that sampled.
        advantages_N: Advantage of each token.
    """

    log_probabilities_N: Tensor
    sampled_log_probabilities_N: Tensor
    advantages_N: Tensor


@dataclass(frozen=True, kw_only=True, slots=True)
class TokenLoss:
    """A loss and what to log about it.

    Attributes:
        loss: Scalar to differentiate.
        clipped: Number of tokens whose term is clipped and so carries no gradient.
    """

    loss: Tensor
    clipped: Tensor


def grpo(terms: TokenTerms, *, clip_low: float, clip_high: float, denominator: float) -> TokenLoss:
    """The clipped policy-gradient loss: -sum(min(r A, clip(r, 1 - clip_low, 1 + clip_high) A)) / denominator.

    r is the ratio of the trained to the sampling policy's probability. Source: GRPO (arXiv 2402.03300) with separate
    bounds (arXiv 2503.14476), without its KL term.

    Args:
        terms: The tokens.
        clip_low: How far a ratio may fall below 1.
        clip_high: How far a ratio may rise above 1.
        denominator: Number of loss terms of the whole step: all packs, all ranks. The sum over packs is then the loss
            of the step, however it was cut.
    """
    log_ratio_N = terms.log_probabilities_N - terms.sampled_log_probabilities_N
    ratio_N = log_ratio_N.clamp(-LOG_RATIO_LIMIT, LOG_RATIO_LIMIT).exp()
    plain_N = ratio_N * terms.advantages_N
    clipped_N = ratio_N.clamp(1 - clip_low, 1 + clip_high) * terms.advantages_N
    return TokenLoss(
        loss=-torch.minimum(plain_N, clipped_N).sum() / denominator,
        clipped=(clipped_N < plain_N).sum(),
    )


def likelihood(terms: TokenTerms, *, denominator: float) -> TokenLoss:
    """Negative log-likelihood: -sum(log p A) / denominator. With every advantage 1 it is the mean over tokens.

    Args:
        terms: The tokens; who sampled them, and how likely that was, does not count.
        denominator: See `grpo`.
    """
    loss = -(terms.log_probabilities_N * terms.advantages_N).sum() / denominator
    return TokenLoss(loss=loss, clipped=torch.zeros((), dtype=torch.int64, device=loss.device))
