"""From terms to what is paid: clipped, then compared with the terms of the same kind of branch."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Hashable, Sequence

from octopus.train.advantages import group_advantages

Kind = Hashable
"""What makes branches comparable: in a group of rollouts of one task, their place in the episode."""


def clipped(term: float | None, limit: float) -> float | None:
    """The term, at most `limit` in size: one outlier would move the mean that all others are held against."""
    return None if term is None else max(-limit, min(limit, term))


def centred(group: Sequence[Sequence[tuple[Kind, float | None]]]) -> list[list[float]]:
    """Centres what branches added by the mean over the branches of the same kind in the group's episodes.

    Such branches were given the same work, hard or easy. A kind's mean is over all its defined terms; an undefined
    term becomes 0, and so does one that has nothing to be compared with. Nothing is divided by a deviation: left-out
    terms are mostly equal, and their deviation is then 0. Equal terms are paid exactly 0, so that episodes of equal
    rewards stay silent.

    Args:
        group: For each episode of one task, kind and term of each of its branches.

    Returns:
        The same shape.
    """
    of_kind: defaultdict[Kind, list[float]] = defaultdict(list)
    for terms in group:
        for kind, term in terms:
            if term is not None:
                of_kind[kind].append(term)
    paid = {kind: iter(group_advantages(terms)) for kind, terms in of_kind.items()}
    return [[0.0 if term is None else next(paid[kind]) for kind, term in terms] for terms in group]
