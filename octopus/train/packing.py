"""Episodes laid out as one row, and where its loss terms stand.

Letters: N loss terms.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from octopus.attention.plan import Plan, lower
from octopus.core.errors import PlanError
from octopus.rollout.episode import Episode, SampledToken
from octopus.train.advantages import group_advantages
from octopus.train.targets import Targets, targets

Groups = Sequence[Sequence[Episode]]
"""Episodes; those of one task, which are compared with each other, together."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Pack:
    """One row for one forward and backward.

    Attributes:
        plan: The row.
        targets: What is predicted, one for each loss term.
        sampled_log_probabilities_N: Natural log, as recorded at the sampling; NaN where nothing was recorded.
        advantages_N: Advantage of each term.
    """

    plan: Plan
    targets: Targets
    sampled_log_probabilities_N: np.ndarray
    advantages_N: np.ndarray

    @property
    def loss_terms(self) -> int:
        """Number of loss terms."""
        return len(self.advantages_N)


def pack(groups: Groups, *, divide_by_deviation: bool = False) -> Pack:
    """Lays out all episodes as one row; each segment enters it once.

    A loss term exists once for each live sampled token; its advantage is its episode's within its group.

    Args:
        groups: The episodes.
        divide_by_deviation: See `group_advantages`.

    Raises:
        PlanError: A path starts with a sampled token, which nothing predicts.
    """
    episodes = [episode for group in groups for episode in group]
    plan = lower(
        [segment for episode in episodes for segment in episode.segments],
        waits=[wait for episode in episodes for wait in episode.waits],
    )
    terms = list(_terms(groups, divide_by_deviation))
    token_rows_N = np.array([plan.starts[term.token.segment] + term.token.offset for term in terms], dtype=np.int64)
    for term, row in zip(terms, token_rows_N, strict=True):
        if plan.predecessors_T[row] < 0:
            raise PlanError(
                f"episode {term.episode}: the first token of {term.token.segment} was sampled, but nothing stands "
                "before it on its path that could predict it; it must be given"
            )
    recorded = [term.token.log_probability for term in terms]
    return Pack(
        plan=plan,
        targets=targets(plan, token_rows_N),
        sampled_log_probabilities_N=np.array([np.nan if value is None else value for value in recorded]),
        advantages_N=np.array([term.advantage for term in terms]),
    )


class _Term(NamedTuple):
    episode: str
    token: SampledToken
    advantage: float


def _terms(groups: Groups, divide_by_deviation: bool) -> Iterator[_Term]:
    for group in groups:
        rewards = [episode.reward for episode in group]
        advantages = group_advantages(rewards, divide_by_deviation=divide_by_deviation)
        for episode, advantage in zip(group, advantages, strict=True):
            for token in episode.sampled:
                if token.live:
                    yield _Term(episode.name, token, advantage)
