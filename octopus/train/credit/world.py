"""An episode without some of its branches, and what evaluations say of it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

from octopus.rollout.environment import Environment
from octopus.rollout.records import RolloutRecord


@dataclass(frozen=True, kw_only=True, slots=True, eq=False)
class Played:
    """An environment, and one rollout of it. Compared by identity."""

    environment: Environment
    record: RolloutRecord

    @property
    def threads(self) -> tuple[int, ...]:
        """Thread ids of the branches."""
        return tuple(branch.thread for branch in self.record.episode.branches)


@dataclass(frozen=True, kw_only=True, slots=True)
class World:
    """A rollout as it would be without some of its branches (indices)."""

    played: Played
    hidden: frozenset[int] = frozenset()


@dataclass(frozen=True, kw_only=True, slots=True)
class Valued:
    """What a world is worth.

    Attributes:
        value: None where that could not be said: a hidden branch writes the answer's own line, or memory did not
            suffice to decode it again.
        hidden_tokens: How many tokens of other branches were hidden with the hidden ones, which influenced them.
        empty: Whether no branch is left.
    """

    value: float | None
    hidden_tokens: int
    empty: bool


NO_ANSWER = Valued(value=0.0, hidden_tokens=0, empty=False)
"""Of every world of a rollout that gave no answer: there is nothing that a branch could have changed."""


class Evaluation(Protocol):
    """A way to say what worlds are worth."""

    @property
    def trust(self) -> float:
        """What differences of its values are multiplied by: 1 where they are exact, less where they are samples."""

    def values(self, worlds: Sequence[World]) -> list[Valued]:
        """What each world is worth; all of them are asked for at once."""
