"""Leave-one-branch-out terms."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from octopus.train.credit.world import Evaluation, Played, Valued, World


@dataclass(frozen=True, kw_only=True, slots=True)
class Term:
    """What one branch added.

    Attributes:
        value: With all branches minus without it; None where hiding it leaves no branch, so that there is nothing to
            compare it with.
        hidden_tokens: How many tokens of other branches were hidden with it.
    """

    value: float | None
    hidden_tokens: int


def left_out_terms(evaluation: Evaluation, rollouts: Sequence[Played]) -> list[tuple[Term, ...]]:
    """For each rollout a term for each of its branches; all worlds of all rollouts are evaluated at once.

    A marginal, also known as difference reward: two branches that found the same get nothing for it, either of them,
    and two that are of use only together are both paid the whole. So the terms do not sum to the value.
    """
    worlds = []
    for played in rollouts:
        alone = [frozenset({branch}) for branch in range(len(played.threads))]
        if alone:
            worlds += [World(played=played, hidden=hidden) for hidden in (frozenset[int](), *alone)]
    valued = iter(evaluation.values(worlds))
    terms = []
    for played in rollouts:
        full = next(valued) if played.threads else None
        without = [next(valued) for _ in played.threads]
        terms.append(tuple(_term(full, one, evaluation.trust) for one in without if full is not None))
    return terms


def _term(full: Valued, without: Valued, trust: float) -> Term:
    if full.value is None or without.value is None or without.empty:
        return Term(value=None, hidden_tokens=without.hidden_tokens)
    return Term(value=trust * (full.value - without.value), hidden_tokens=without.hidden_tokens)
