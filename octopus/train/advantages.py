"""Group-relative advantages."""

from __future__ import annotations

import statistics
from collections.abc import Sequence

ROUNDING = 1e-12
"""Relative to the largest reward: some thousand units in the last place of a float."""


def group_advantages(rewards: Sequence[float], *, divide_by_deviation: bool = False) -> list[float]:
    """Centres the rewards of one group by their mean: A_i = r_i - mean(r).

    Dividing by the deviation is an option and off by default, since it blows a small difference up to unit size.
    The deviation is the whole group's (sample deviation, n - 1), never that of a set with one left out. Rewards that
    differ by no more than sums of floats do for want of digits are equal: their deviation is nothing but rounding.

    Args:
        rewards: Rewards of the episodes of one task.
        divide_by_deviation: Divides by the group's deviation.

    Returns:
        One advantage an episode. All 0 where the rewards are equal, so also for a group of one.
    """
    if not rewards or max(rewards) - min(rewards) <= ROUNDING * max(map(abs, rewards)):
        return [0.0] * len(rewards)
    mean = statistics.fmean(rewards)
    scale = statistics.stdev(rewards) if divide_by_deviation else 1.0
    return [(reward - mean) / scale for reward in rewards]
