"""What every sampled token of a group of rollouts is worth."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from octopus.rollout.environment import Environment
from octopus.rollout.records import RolloutRecord
from octopus.train.advantages import group_advantages
from octopus.train.credit import Evidence, Place, centred, influences, left_out_terms
from octopus.train.packing import RatedEpisode


@dataclass(frozen=True, kw_only=True, slots=True)
class Rating:
    """A rated group.

    Attributes:
        episodes: Those that can be compared; one that did not fit into memory was cut off by no fault of its own.
        terms: What each branch of each of them added, None where that is undefined.
    """

    episodes: tuple[RatedEpisode, ...]
    terms: tuple[tuple[float | None, ...], ...]


def rate(
    environment: Environment,
    group: Sequence[RolloutRecord],
    *,
    branch_weight: float,
    divide_by_deviation: bool = False,
) -> Rating:
    """Rates the rollouts of one task.

    The orchestrator's tokens are paid the episode's group-relative advantage. A branch's tokens are paid that plus
    `branch_weight` times what the branch added, compared with the branches at its place in the group's other episodes.

    Args:
        environment: The task's.
        group: Its rollouts.
        branch_weight: 0 pays branches like their episode.
        divide_by_deviation: See `group_advantages`. What branches added is never divided.
    """
    fair = [record for record in group if record.outcome != "capacity"]
    rewards = [record.episode.reward for record in fair]
    advantages = group_advantages(rewards, divide_by_deviation=divide_by_deviation)
    terms = tuple(left_out_terms(evidence_of(environment, record)) for record in fair)
    rated = []
    for record, advantage, added in zip(
        fair, advantages, centred(list(map(_by_place, fair, terms))), strict=True
    ):
        branches = record.episode.branches
        worth = {branch.thread: advantage + branch_weight * added[branch.place] for branch in branches}
        tokens = (worth.get(token.thread, advantage) for token in record.episode.sampled)
        rated.append(RatedEpisode(episode=record.episode, advantages=tuple(tokens)))
    return Rating(episodes=tuple(rated), terms=terms)


def _by_place(record: RolloutRecord, terms: Sequence[float | None]) -> dict[Place, float | None]:
    return {branch.place: term for branch, term in zip(record.episode.branches, terms, strict=True)}


def evidence_of(environment: Environment, record: RolloutRecord) -> Evidence:
    """Who found what in a rollout. An episode without an answer earns 0, whatever is hidden."""
    episode, answer = record.episode, record.answer

    def value(lost: frozenset[int]) -> float:
        return 0.0 if answer is None else environment.score(answer, lost=lost)

    return Evidence(
        gold=record.gold,
        found=tuple(frozenset(branch.documents) for branch in episode.branches),
        kept=frozenset(record.documents),
        hides=influences([branch.thread for branch in episode.branches], episode.segments, episode.waits),
        value=value,
    )
