"""What every sampled token of a group of rollouts is worth."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from octopus.rollout.play import CUT_OFF
from octopus.train.advantages import group_advantages
from octopus.train.credit.centring import centred, clipped
from octopus.train.credit.left_out import Term
from octopus.train.credit.world import Played
from octopus.train.job_config import CreditConfig
from octopus.train.packing import RatedEpisode


@dataclass(frozen=True, kw_only=True, slots=True)
class Rating:
    """A rated group.

    Attributes:
        episodes: Each with what its tokens are worth.
        terms: What each branch of each of them added; empty where nobody asked.
    """

    episodes: tuple[RatedEpisode, ...]
    terms: tuple[tuple[Term, ...], ...]


def rate(
    group: Sequence[Played],
    terms: Sequence[tuple[Term, ...]],
    *,
    credit: CreditConfig,
    divide_by_deviation: bool = False,
) -> Rating:
    """Rates rollouts of one task that can be compared.

    The orchestrator's tokens are paid the episode's group-relative advantage. A branch's tokens are paid that plus
    `credit.weight` times what the branch added, compared with the branches at its place in the group's other episodes.

    Args:
        group: The rollouts.
        terms: For each of them what its branches added; nothing for any of them pays branches like their episode.
        credit: Weight and clipping.
        divide_by_deviation: See `group_advantages`. What branches added is never divided.
    """
    episodes = [played.record.episode for played in group]
    advantages = group_advantages(
        [episode.reward for episode in episodes], divide_by_deviation=divide_by_deviation
    )
    places = [[branch.place for branch in episode.branches] for episode in episodes]
    values = [[clipped(term.value, credit.clip) for term in added] for added in terms]
    pairs = [list(zip(*both, strict=True)) if both[1] else [] for both in zip(places, values, strict=True)]
    rated = []
    for episode, advantage, added in zip(episodes, advantages, centred(pairs), strict=True):
        worth = {
            branch.thread: advantage + credit.weight * part
            for branch, part in zip(episode.branches, added, strict=bool(added))
        }
        tokens = (worth.get(token.thread, advantage) for token in episode.sampled)
        rated.append(RatedEpisode(episode=episode, advantages=tuple(tokens)))
    return Rating(episodes=tuple(rated), terms=tuple(terms))


def comparable(group: Sequence[Played]) -> list[Played]:
    """Those that can be compared: others were cut off by no fault of their own."""
    return [played for played in group if played.record.outcome not in CUT_OFF]
