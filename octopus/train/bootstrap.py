"""How sure a difference between two evaluations of the same questions is."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np


@dataclass(frozen=True, kw_only=True, slots=True)
class Interval:
    """A difference of means and its percentile interval."""

    difference: float
    low: float
    high: float

    def __str__(self) -> str:
        return f"{self.difference:+.3f} [{self.low:+.3f}, {self.high:+.3f}]"


def paired_interval(
    before: Sequence[float], after: Sequence[float], *, seed: int = 0, resamples: int = 10_000, level: float = 0.95
) -> Interval:
    """The bootstrap interval of mean(after) - mean(before), questions resampled in pairs.

    Questions with the same difference are alike, so a resample is one multinomial draw over the distinct differences:
    the same distribution as drawing questions one by one, at the cost of a few numbers a resample.

    Source: B. Efron, "Bootstrap methods: another look at the jackknife", Annals of Statistics 7 (1979); percentile
    interval.

    Args:
        before: One figure for each question.
        after: The same questions in the same order.
        seed: Of the resampling: the same input gives the same interval.
        resamples: How many.
        level: Share of the resamples between the ends.

    Raises:
        ValueError: The lengths differ, or there is no question.
    """
    if len(before) != len(after) or not len(before):
        raise ValueError(f"expected figures of the same questions, at least one, came {len(before)} and {len(after)}")
    differences = np.asarray(after, dtype=np.float64) - np.asarray(before, dtype=np.float64)
    values, counts = np.unique(differences, return_counts=True)
    count = len(differences)
    drawn = np.random.default_rng(seed).multinomial(count, counts / count, size=resamples)
    means = drawn @ values / count
    low, high = np.quantile(means, [(1 - level) / 2, (1 + level) / 2], method="inverted_cdf")
    return Interval(difference=float(differences.mean()), low=float(low), high=float(high))
