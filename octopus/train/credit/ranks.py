"""Spearman's rank correlation."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np


def rank_correlation(one: Sequence[float], other: Sequence[float]) -> float | None:
    """How far two measures order the same things alike, -1 to 1; None where either of them orders nothing.

    The linear correlation of ranks, equal values sharing the mean of theirs (C. Spearman, "The proof and measurement
    of association between two things", American Journal of Psychology 15, 1904).
    """
    if len(one) < 2:
        return None
    first, second = _centred_ranks(one), _centred_ranks(other)
    size = float(np.sqrt((first @ first) * (second @ second)))
    return float(first @ second) / size if size else None


def _centred_ranks(values: Sequence[float]) -> np.ndarray:
    _, inverse, counts = np.unique(np.asarray(values), return_inverse=True, return_counts=True)
    last = np.cumsum(counts)
    mean_rank = last - (counts - 1) / 2
    return np.asarray(mean_rank[inverse] - (len(values) + 1) / 2)
