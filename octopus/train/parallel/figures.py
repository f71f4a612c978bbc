"""What the passes of a step found, as sums that add up over packs and ranks.

Letters: N loss terms.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import astuple, dataclass

import numpy as np

from octopus.train.losses import LOG_RATIO_LIMIT, LossSums
from octopus.train.packing import Pack
from octopus.train.parallel.ranks import Ranks
from octopus.train.passes import PassResult


@dataclass(frozen=True, kw_only=True, slots=True)
class Figures:
    """Sums over passes.

    Attributes:
        loss: The step's loss.
        favoured: Log-probabilities of tokens with a positive advantage, in nats.
        favoured_terms: Number of these.
        disfavoured: The same where the advantage is negative.
        disfavoured_terms: Number of these.
        packed_tokens: Rows.
        sums: What the loss tells of its terms.
        mismatch: Sum over loss terms of k3 estimates of the KL divergence from sampling to trained policy, in nats:
            exp(d) - 1 - d with d the log-probability minus that at the sampling (J. Schulman, "Approximating
            KL divergence", 2020). NaN if one was not recorded.
        log_ratio_max: Largest size of a log-probability minus that of the sampling policy; -inf without a term, NaN if
            one was not recorded.
    """

    loss: float
    favoured: float
    favoured_terms: int
    disfavoured: float
    disfavoured_terms: int
    packed_tokens: int
    sums: LossSums
    mismatch: float
    log_ratio_max: float

    @classmethod
    def of(cls, packs: Sequence[Pack], results: Sequence[PassResult]) -> Figures:
        """Of the passes of one rank, one for each pack."""
        scored_N = _joined([result.log_probabilities_N for result in results])
        advantages_N = _joined([pack.advantages_N for pack in packs])
        log_ratios_N = scored_N - _joined([pack.sampled_log_probabilities_N for pack in packs])
        return cls(
            loss=sum(result.loss for result in results),
            favoured=float(scored_N[advantages_N > 0].sum()),
            favoured_terms=int((advantages_N > 0).sum()),
            disfavoured=float(scored_N[advantages_N < 0].sum()),
            disfavoured_terms=int((advantages_N < 0).sum()),
            packed_tokens=sum(pack.plan.length for pack in packs),
            sums=sum((result.sums for result in results), LossSums()),
            mismatch=float((np.expm1(np.minimum(log_ratios_N, LOG_RATIO_LIMIT)) - log_ratios_N).sum()),
            log_ratio_max=float(np.max(np.abs(log_ratios_N), initial=-math.inf)),
        )

    def over(self, ranks: Ranks) -> Figures:
        """The same of all ranks together."""
        numbers = [self.loss, self.favoured, self.favoured_terms, self.disfavoured, self.disfavoured_terms]
        loss, favoured, plus, disfavoured, minus, rows, mismatch, clipped, capped, *sums = ranks.total(
            [*numbers, self.packed_tokens, self.mismatch, *astuple(self.sums)]
        )
        importance, kl, entropy = sums
        return Figures(
            loss=loss,
            favoured=favoured,
            favoured_terms=int(plus),
            disfavoured=disfavoured,
            disfavoured_terms=int(minus),
            packed_tokens=int(rows),
            sums=LossSums(
                clipped=int(clipped), capped=int(capped), importance=importance, kl=kl, entropy=entropy
            ),
            mismatch=mismatch,
            log_ratio_max=float(np.max(ranks.gather(self.log_ratio_max))),
        )


def _joined(columns: Sequence[np.ndarray]) -> np.ndarray:
    return np.concatenate(columns) if columns else np.zeros(0)
