"""What a step has in all, and from it what each of its loss terms weighs.

Letters: N loss terms.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from octopus.train.config import LossConfig


@dataclass(frozen=True, kw_only=True, slots=True)
class Counts:
    """How many loss terms and sequences there are. Counts of packs, of ranks and of what was not packed add up.

    A sequence is the live sampled tokens of one thread in one episode: what one agent wrote.

    Attributes:
        terms: Loss terms.
        sequences: Sequences. Each term counts one part of its own, so a sequence that was cut adds up to 1.
    """

    terms: int = 0
    sequences: float = 0.0

    @classmethod
    def of(cls, sequence_terms_N: np.ndarray) -> Counts:
        """Counts loss terms, given how many terms the sequence of each has."""
        return cls(terms=len(sequence_terms_N), sequences=float((1.0 / sequence_terms_N).sum()))

    def __add__(self, other: Counts) -> Counts:
        return Counts(terms=self.terms + other.terms, sequences=self.sequences + other.sequences)


def term_weights(loss: LossConfig, counts: Counts, sequence_terms_N: np.ndarray) -> np.ndarray:
    """What each loss term weighs in the step's loss, which is the weighted sum over all its terms.

    Nothing but `counts` is known of the rest of the step, so it does not matter how the step was cut into packs.

    - dapo, cispo, likelihood: the mean over tokens, 1 / terms. Sources: arXiv 2503.14476, 2506.13585.
    - grpo, gspo: the mean over sequences of their means, 1 / (sequences x length). Sources: arXiv 2402.03300,
      2507.18071.
    - dr_grpo: the mean over sequences of their sums over a constant, 1 / (sequences x constant), so that length has no
      say. Source: arXiv 2503.20783.

    Means are those of the whole step. Papers that take them over each question's group agree with this where groups
    have equally many tokens or sequences. An episode with more threads has more sequences.

    Args:
        loss: Names the loss.
        counts: Of the whole step: all packs, all ranks, and the terms that were not packed.
        sequence_terms_N: Number of terms in the whole step of each term's sequence.

    Returns:
        float64 [N].
    """
    if loss.name in ("grpo", "gspo"):
        return 1.0 / (counts.sequences * sequence_terms_N)
    if loss.name == "dr_grpo":
        return np.full(len(sequence_terms_N), 1.0 / max(1.0, counts.sequences * loss.sequence_tokens))
    return np.full(len(sequence_terms_N), 1.0 / max(1, counts.terms))
