"""Episodes laid out as one row, and where its loss terms stand.

Letters: N loss terms.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from octopus.attention.plan import Plan, lower
from octopus.core.errors import PlanError
from octopus.core.segment import Segment
from octopus.rollout.episode import Episode, SampledToken
from octopus.train.advantages import group_advantages
from octopus.train.counts import Counts
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
        sequences_N: Number of each term's sequence: the live sampled tokens of one thread in one episode.
        sequence_terms_N: How many terms that sequence has in the whole step, also where it was cut.
        anchor_log_probabilities_N: Under the policy that ratios are taken to; NaN until `scored` has filled it in.
        reference_log_probabilities_N: Under the policy not to stray from; likewise.
    """

    plan: Plan
    targets: Targets
    sampled_log_probabilities_N: np.ndarray
    advantages_N: np.ndarray
    sequences_N: np.ndarray
    sequence_terms_N: np.ndarray
    anchor_log_probabilities_N: np.ndarray
    reference_log_probabilities_N: np.ndarray

    @property
    def loss_terms(self) -> int:
        """Number of loss terms."""
        return len(self.advantages_N)

    @property
    def counts(self) -> Counts:
        """What the pack adds to the counts of its step."""
        return Counts.of(self.sequence_terms_N)


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
    def counts(self) -> Counts:
        """What the episode adds to the counts of its step."""
        lengths = Counter(token.thread for token in self.episode.sampled if token.live)
        return Counts(terms=lengths.total(), sequences=len(lengths))

    @property
    def silent(self) -> bool:
        """Whether the advantage of every live token is 0, so that only a regularised loss has a gradient for it."""
        pairs = zip(self.episode.sampled, self.advantages, strict=True)
        return not any(advantage for token, advantage in pairs if token.live)


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
    _, sequences_N, lengths = np.unique(
        np.array([(term.number, term.token.thread) for term in terms], dtype=np.int64).reshape(-1, 2),
        axis=0, return_inverse=True, return_counts=True,
    )  # fmt: skip
    return Pack(
        plan=plan,
        targets=targets(plan, token_rows_N),
        sampled_log_probabilities_N=np.array([np.nan if value is None else value for value in recorded]),
        advantages_N=np.array([term.advantage for term in terms]),
        sequences_N=sequences_N,
        sequence_terms_N=lengths[sequences_N],
        anchor_log_probabilities_N=np.full(len(terms), np.nan),
        reference_log_probabilities_N=np.full(len(terms), np.nan),
    )


def bins(rated: Sequence[RatedEpisode], *, budget_tokens: int) -> list[list[RatedEpisode]]:
    """Cuts episodes, in their order, into packs of at most `budget_tokens` unique tokens each.

    Neighbours stay together, so that what the episodes of one task share is packed once. An episode that is larger than
    the budget alone gets a pack of its own, to be cut by `split`. Denominators are the whole step's, so neither changes
    a gradient.
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
    number: int
    episode: str
    token: SampledToken
    advantage: float


def _terms(rated: Sequence[RatedEpisode]) -> Iterator[_Term]:
    for number, one in enumerate(rated):
        for token, advantage in zip(one.episode.sampled, one.advantages, strict=True):
            if token.live:
                yield _Term(number, one.episode.name, token, advantage)


def _segments(rated: Sequence[RatedEpisode]) -> Iterable[Segment]:
    return dict.fromkeys(segment for one in rated for segment in one.episode.segments)


def _tokens(segments: Iterable[Segment]) -> int:
    return sum(len(segment.tokens) for segment in segments)
