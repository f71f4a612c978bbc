"""Episodes laid out as one row, and where its loss terms stand.

Letters: N loss terms.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from octopus.attention.plan import Plan, lower
from octopus.core.errors import PlanError
from octopus.core.segment import Segment
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


@dataclass(frozen=True, kw_only=True, slots=True)
class RatedEpisode:
    """An episode, and what each of its sampled tokens is worth.

    Attributes:
        episode: What was sampled.
        advantages: One for each of `episode.sampled`, in that order; those of tokens that are not live count nothing.
    """

    episode: Episode
    advantages: tuple[float, ...]

    @property
    def loss_terms(self) -> int:
        """Number of loss terms."""
        return sum(token.live for token in self.episode.sampled)

    @property
    def silent(self) -> bool:
        """Whether every advantage is 0, so that packing it would change no gradient."""
        return not any(self.advantages)


def pack(groups: Groups, *, divide_by_deviation: bool = False) -> Pack:
    """Lays out all episodes as one row; each token is paid its episode's advantage within its group.

    Args:
        groups: The episodes.
        divide_by_deviation: See `group_advantages`.

    Raises:
        PlanError: A path starts with a sampled token, which nothing predicts.
    """
    rated = []
    for group in groups:
        rewards = [episode.reward for episode in group]
        advantages = group_advantages(rewards, divide_by_deviation=divide_by_deviation)
        rated += [evenly(episode, advantage) for episode, advantage in zip(group, advantages, strict=True)]
    return pack_rated(rated)


def evenly(episode: Episode, advantage: float) -> RatedEpisode:
    """The episode with the same advantage for every token."""
    return RatedEpisode(episode=episode, advantages=(advantage,) * len(episode.sampled))


def pack_rated(rated: Sequence[RatedEpisode]) -> Pack:
    """Lays out rated episodes as one row. Each segment enters it once, also one that several episodes share.

    A loss term exists once for each live sampled token.

    Raises:
        PlanError: A path starts with a sampled token, which nothing predicts.
    """
    episodes = [one.episode for one in rated]
    plan = lower(list(_segments(rated)), waits=[wait for episode in episodes for wait in episode.waits])
    terms = list(_terms(rated))
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


def bins(rated: Sequence[RatedEpisode], *, budget_tokens: int) -> list[list[RatedEpisode]]:
    """Cuts episodes, in their order, into packs of at most `budget_tokens` unique tokens each.

    Neighbours stay together, so that what the episodes of one task share is packed once. An episode that is larger than
    the budget alone gets a pack of its own. Denominators are the whole step's, so the cut changes no gradient.
    """
    filled: list[list[RatedEpisode]] = []
    held: set[Segment] = set()
    for one in rated:
        if filled and _tokens(held.union(one.episode.segments)) <= budget_tokens:
            filled[-1].append(one)
            held.update(one.episode.segments)
        else:
            filled.append([one])
            held = set(one.episode.segments)
    return filled


def path_tokens(episodes: Sequence[Episode]) -> int:
    """Tokens that training every line of thought as a row of its own would take, what it read laid out as text.

    A line ends at the last live sampled token of a segment, unless another segment continues it from there on.
    """
    total = 0
    for episode in episodes:
        ends = {token.segment: token.offset + 1 for token in episode.sampled if token.live}
        parents = [segment.parent for segment in episode.segments if segment.parent is not None]
        continued = {parent.segment for parent in parents if parent.length >= ends.get(parent.segment, 0)}
        total += sum(segment.start_position + end for segment, end in ends.items() if segment not in continued)
    return total


class _Term(NamedTuple):
    episode: str
    token: SampledToken
    advantage: float


def _terms(rated: Sequence[RatedEpisode]) -> Iterator[_Term]:
    for one in rated:
        for token, advantage in zip(one.episode.sampled, one.advantages, strict=True):
            if token.live:
                yield _Term(one.episode.name, token, advantage)


def _segments(rated: Sequence[RatedEpisode]) -> Iterable[Segment]:
    return dict.fromkeys(segment for one in rated for segment in one.episode.segments)


def _tokens(segments: Iterable[Segment]) -> int:
    return sum(len(segment.tokens) for segment in segments)
