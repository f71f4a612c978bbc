"""Branch credit as a job's configuration asks for it, and what there is to say about it."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from random import Random
from typing import Any

from octopus.models.backbone import Backbone
from octopus.rollout.codec import Codec
from octopus.rollout.dialect import Dialect
from octopus.rollout.engine import Engine
from octopus.train.credit.coverage import Coverage
from octopus.train.credit.left_out import Term, left_out_terms
from octopus.train.credit.ranks import rank_correlation
from octopus.train.credit.regenerate import Regenerate
from octopus.train.credit.rescore import Rescore
from octopus.train.credit.world import Evaluation, Played
from octopus.train.job_config import JobConfig

EDGES = (-1.0, -0.5, -0.1, -0.01, 0.01, 0.1, 0.5, 1.0)
"""Of the histogram's nine cells: the first holds what is below -1, the last what is 1 or more."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Credited:
    """The credit of some rollouts.

    Attributes:
        terms: What each branch of each of them added; none where the method is `none`.
        figures: For `metrics.jsonl`.
    """

    terms: list[tuple[Term, ...]]
    figures: dict[str, Any]


class Crediting:
    """Evaluates the branches of rollouts; for a share of the episodes also by decoding again, for comparison."""

    def __init__(
        self, config: JobConfig, *, backbone: Backbone, dialect: Dialect, new_engine: Callable[[], Engine]
    ) -> None:
        """`new_engine` gives an engine of the policy that keeps no trace; called only if answers are decoded again."""
        self._credit = config.grpo.credit
        method = self._credit.method
        again = None
        if method == "regenerate" or self._credit.regenerate_share:
            again = Regenerate(
                new_engine(),
                dialect,
                scope=self._credit.scope,
                samples=self._credit.samples,
                temperature=config.rollout.temperature,
                turn_tokens=config.rollout.turn_tokens,
            )
        self._again = again
        self._evaluation: Evaluation | None = again if method == "regenerate" else None
        if method == "coverage":
            self._evaluation = Coverage(self._credit.scope)
        elif method == "rescore":
            self._evaluation = Rescore(
                backbone,
                dialect if isinstance(dialect, Codec) else None,
                scope=self._credit.scope,
                step=config.step,
                budget_tokens=config.packing.budget_tokens,
            )

    def credit(self, rollouts: Sequence[Played]) -> Credited:
        """Evaluates all branches of the rollouts at once."""
        if self._evaluation is None:
            return Credited(terms=[() for _ in rollouts], figures={})
        terms = left_out_terms(self._evaluation, rollouts)
        figures = term_figures([term for episode in terms for term in episode], clip=self._credit.clip)
        if self._again is not None and self._again is not self._evaluation:
            chosen = [number for number, played in enumerate(rollouts) if self._is_chosen(played)]
            again = left_out_terms(self._again, [rollouts[number] for number in chosen])
            figures |= comparison([terms[number] for number in chosen], again)
        return Credited(terms=terms, figures=figures)

    def _is_chosen(self, played: Played) -> bool:
        """A draw that hangs on the episode's name alone, so that a resumed run draws the same."""
        return Random(played.record.episode.name).random() < self._credit.regenerate_share


def term_figures(terms: Sequence[Term], *, clip: float) -> dict[str, Any]:
    """Counts of terms, their mean before clipping, and their histogram by EDGES."""
    defined = [term.value for term in terms if term.value is not None]
    histogram = [0] * (len(EDGES) + 1)
    for value in defined:
        histogram[bisect_right(EDGES, value)] += 1
    return {
        "branch_terms_undefined": len(terms) - len(defined),
        "branch_term": sum(defined) / len(defined) if defined else None,
        "branch_terms_clipped": sum(abs(value) > clip for value in defined),
        "branch_term_histogram": histogram,
        "hidden_tokens": sum(term.hidden_tokens for term in terms),
    }


def comparison(cheap: Sequence[tuple[Term, ...]], again: Sequence[tuple[Term, ...]]) -> dict[str, Any]:
    """How alike two evaluations order the branches for which both have a term."""
    pairs = [pair for episodes in zip(cheap, again, strict=True) for pair in zip(*episodes, strict=True)]
    both = [(one.value, other.value) for one, other in pairs if one.value is not None and other.value is not None]
    return {
        "regenerated_branches": len(pairs),
        "regenerated_undefined": sum(other.value is None for _, other in pairs),
        "regenerated_rank_correlation": rank_correlation(
            [one for one, _ in both], [other for _, other in both]
        ),
    }
