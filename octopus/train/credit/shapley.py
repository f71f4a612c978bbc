"""Exact Shapley values: the checker of cheaper credit."""

from __future__ import annotations

from itertools import combinations
from math import factorial

from octopus.core.errors import OctopusError
from octopus.train.credit.world import Evaluation, Played, World

MOST_BRANCHES = 4
"""16 worlds an episode."""


def shapley_values(evaluation: Evaluation, played: Played) -> tuple[float, ...]:
    """Each branch's marginal, averaged over all orders in which branches may join.

    They sum to the value with all branches minus the value with none. Source: L. S. Shapley, "A value for n-person
    games", Contributions to the Theory of Games II (1953).

    Raises:
        OctopusError: More than MOST_BRANCHES branches, or a world that the evaluation cannot value.
    """
    count = len(played.threads)
    if count > MOST_BRANCHES:
        raise OctopusError(f"exact Shapley values take at most {MOST_BRANCHES} branches, this episode has {count}")
    everybody = frozenset(range(count))
    sets = [frozenset(hidden) for size in range(count + 1) for hidden in combinations(range(count), size)]
    valued = evaluation.values([World(played=played, hidden=hidden) for hidden in sets])
    value = {hidden: one.value for hidden, one in zip(sets, valued, strict=True)}

    def worth(hidden: frozenset[int]) -> float:
        found = value[hidden]
        if found is None:
            raise OctopusError(f"the episode without its branches {sorted(hidden)} has no value")
        return found

    return tuple(
        sum(
            factorial(len(hidden) - 1) * factorial(count - len(hidden)) / factorial(count)
            * (worth(hidden - {branch}) - worth(hidden))
            for hidden in sets
            if branch in hidden
        )
        for branch in sorted(everybody)
    )  # fmt: skip
