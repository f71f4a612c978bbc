"""Policy losses over sampled tokens: what each term is; what it weighs is told in `counts`.

Letters: N sampled tokens with a loss term, S sequences. Tokens without a term never get here, so nothing has to be
masked away.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from octopus.core.errors import PlanError
from octopus.train.config import LossConfig

LOG_RATIO_LIMIT = 20.0
"""exp of 89 overflows float32, and 0 * inf would poison the weights. A ratio that far out is clipped or lost anyway."""


@dataclass(frozen=True, kw_only=True, slots=True)
class TokenTerms:
    """What a loss needs to know. Log-probabilities are natural logs, all at temperature 1.

    Attributes:
        log_probabilities_N: Under the policy that is trained. Carries the gradient.
        entropies_N: Of the distribution that each token is drawn from, under the policy that is trained, in nats.
        sampled_log_probabilities_N: As recorded when the token was sampled.
        anchor_log_probabilities_N: Under the policy that ratios are taken to.
        reference_log_probabilities_N: Under the policy not to stray from; not read without a KL term.
        advantages_N: Advantage of each token.
        sequences_N: Number of each token's sequence.
        sequence_terms_N: How many tokens that sequence has in the whole step.
        weights_N: What each term weighs.
    """

    log_probabilities_N: Tensor
    entropies_N: Tensor
    sampled_log_probabilities_N: Tensor
    anchor_log_probabilities_N: Tensor
    reference_log_probabilities_N: Tensor
    advantages_N: Tensor
    sequences_N: Tensor
    sequence_terms_N: Tensor
    weights_N: Tensor


@dataclass(frozen=True, kw_only=True, slots=True)
class LossSums:
    """What to log about loss terms: sums over them, which add up over packs.

    Attributes:
        clipped: Terms whose ratio was out of bounds on the side where it counts.
        capped: Terms whose importance weight was cut to its cap.
        importance: Importance weights.
        kl: Estimates of the KL divergence from the reference policy, in nats; 0 without a KL term.
        entropy: Entropies, in nats.
    """

    clipped: int = 0
    capped: int = 0
    importance: float = 0.0
    kl: float = 0.0
    entropy: float = 0.0

    def __add__(self, other: LossSums) -> LossSums:
        return LossSums(
            clipped=self.clipped + other.clipped,
            capped=self.capped + other.capped,
            importance=self.importance + other.importance,
            kl=self.kl + other.kl,
            entropy=self.entropy + other.entropy,
        )


def policy_loss(terms: TokenTerms, config: LossConfig) -> tuple[Tensor, LossSums]:
    """The weighted sum over terms of  w (policy + kl_weight r k3) - entropy_weight H,  and what to log about it.

    `policy` is the term of the named loss; w the importance weight between rollout and trainer; r the token's ratio to
    the anchor; H the entropy.

    Raises:
        PlanError: The loss is `gspo`, and of a sequence only some tokens are here.
    """
    log_ratio_N = terms.log_probabilities_N - terms.anchor_log_probabilities_N
    values_N, clipped_N = _policy_terms(terms, log_ratio_N, config)
    importance_N, capped_N = importance(terms, config)
    kl_N = torch.zeros_like(values_N)
    if config.kl_weight:
        kl_N = k3(terms.log_probabilities_N, terms.reference_log_probabilities_N)
        values_N = values_N + config.kl_weight * _exp(log_ratio_N) * kl_N
    values_N = importance_N * values_N
    if config.entropy_weight:
        values_N = values_N - config.entropy_weight * terms.entropies_N
    sums = LossSums(
        clipped=int(clipped_N.sum()),
        capped=int(capped_N.sum()),
        importance=importance_N.sum().item(),
        kl=kl_N.sum().item(),
        entropy=terms.entropies_N.sum().item(),
    )
    return (terms.weights_N * values_N).sum(), sums


def clipped_terms(
    log_ratio_N: Tensor, advantages_N: Tensor, *, low: float, high: float
) -> tuple[Tensor, Tensor]:
    """-min(r A, clip(r, 1 - low, 1 + high) A), and where it is the clipped side, which carries no gradient.

    The term of grpo, dr_grpo and dapo, with a ratio for each token, and of gspo, with one for each sequence. Sources:
    PPO (arXiv 1707.06347); GRPO (arXiv 2402.03300) without its KL term; separate bounds from DAPO (arXiv 2503.14476).
    """
    ratio_N = _exp(log_ratio_N)
    plain_N = ratio_N * advantages_N
    clipped_N = ratio_N.clamp(1 - low, 1 + high) * advantages_N
    return -torch.minimum(plain_N, clipped_N), clipped_N < plain_N


def cispo_terms(
    log_probabilities_N: Tensor, log_ratio_N: Tensor, advantages_N: Tensor, *, low: float, high: float
) -> tuple[Tensor, Tensor]:
    """-stop_gradient(clip(r, 1 - low, 1 + high)) A log p, and where the ratio was clipped. Every term has a gradient.

    Source: MiniMax-M1 (arXiv 2506.13585), equations 4 and 5; low = 1 is its setting without a lower bound.
    """
    ratio_N = _exp(log_ratio_N.detach())
    bounded_N = ratio_N.clamp(1 - low, 1 + high)
    return -bounded_N * advantages_N * log_probabilities_N, bounded_N != ratio_N


def sequence_log_ratio(log_ratio_N: Tensor, sequences_N: Tensor, sequence_terms_N: Tensor) -> Tensor:
    """For each token the mean log ratio of its sequence; the gradient is that of the token's own log ratio.

    Where all tokens of a sequence have one advantage, the mean of their terms has GSPO's value and gradient. Source:
    GSPO (arXiv 2507.18071), equations 7 and 13 (GSPO-token).

    Raises:
        PlanError: Of a sequence only some tokens are here.
    """
    _, places_N, present_S = torch.unique(sequences_N, return_inverse=True, return_counts=True)
    if not torch.equal(present_S[places_N], sequence_terms_N):
        raise PlanError("gspo needs each sequence whole in one pack, but one was cut; cut packs between sequences")
    own_N = log_ratio_N.detach()
    sums_S = own_N.new_zeros(len(present_S)).index_add(0, places_N, own_N)
    return (sums_S / present_S)[places_N] + (log_ratio_N - own_N)


def k3(log_probabilities_N: Tensor, reference_log_probabilities_N: Tensor) -> Tensor:
    """exp(d) - d - 1 with d = log p_reference - log p: estimates KL(p || reference) from samples of p, never below 0.

    Its own gradient is that of the opposite divergence. Times the ratio to the policy that sampled, through which the
    gradient flows as well, value and gradient are unbiased, also off policy: the ratio's gradient adds
    (exp(d) - d - 1) grad log p to (1 - exp(d)) grad log p, and what remains is -d grad log p. Sources: J. Schulman,
    "Approximating KL divergence" (2020); the ratio from DeepSeek-V3.2 (arXiv 2512.02556).
    """
    difference_N = reference_log_probabilities_N - log_probabilities_N
    return _exp(difference_N) - difference_N - 1


def importance(terms: TokenTerms, config: LossConfig) -> tuple[Tensor, Tensor]:
    """min(p_anchor / p_sampled, cap), a constant for each token, and where the cap cut.

    It is 1 where the rollout is the anchor: the ratio then holds the difference already. gspo takes one ratio for a
    sequence here as well. Source: E. Ionides,
    "Truncated importance sampling", Journal of Computational and Graphical Statistics 17 (2008).
    """
    if config.anchor == "rollout" or config.name == "likelihood":
        ones_N = torch.ones_like(terms.advantages_N)
        return ones_N, torch.zeros_like(ones_N, dtype=torch.bool)
    difference_N = terms.anchor_log_probabilities_N - terms.sampled_log_probabilities_N
    if config.name == "gspo":
        difference_N = sequence_log_ratio(difference_N, terms.sequences_N, terms.sequence_terms_N)
    ratio_N = _exp(difference_N)
    return ratio_N.clamp(max=config.importance_cap), ratio_N > config.importance_cap


def _policy_terms(terms: TokenTerms, log_ratio_N: Tensor, config: LossConfig) -> tuple[Tensor, Tensor]:
    if config.name == "likelihood":
        values_N = -terms.advantages_N * terms.log_probabilities_N
        return values_N, torch.zeros_like(values_N, dtype=torch.bool)
    low, high = config.clip_low, config.clip_high
    if config.name == "cispo":
        return cispo_terms(terms.log_probabilities_N, log_ratio_N, terms.advantages_N, low=low, high=high)
    if config.name == "gspo":
        log_ratio_N = sequence_log_ratio(log_ratio_N, terms.sequences_N, terms.sequence_terms_N)
    return clipped_terms(log_ratio_N, terms.advantages_N, low=low, high=high)


def _exp(log_N: Tensor) -> Tensor:
    return log_N.clamp(-LOG_RATIO_LIMIT, LOG_RATIO_LIMIT).exp()
