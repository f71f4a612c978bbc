"""Evidence: what an answer earns without the parts whose document only hidden branches had found.

Hiding a branch hides its children, and in scope `closure` every branch that it influences, also by words that were
waited for. That is exact for what retrieval brought, in every mode, and free: no model is run. It does not say what the
others would have done instead.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass

from octopus.train.credit.counterfactual import Scope
from octopus.train.credit.influence import families, influences
from octopus.train.credit.world import Played, Valued, World

Value = Callable[[frozenset[int]], float]
"""The reward that the episode's answer earns when it loses these parts."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Evidence:
    """Who found what in one episode.

    Example: two parts; branch 0 found the document of part 0, branch 1 those of both parts. Without branch 0 nothing
    is lost, without branch 1 part 1 is.

    Attributes:
        gold: The document of each part of the question.
        found: For each branch the documents that results of search or open showed to it.
        kept: What results showed to the orchestrator itself, which no hiding takes away.
        hides: For each branch the branches that are hidden with it, itself included.
        value: Reward by lost parts; of none it is the episode's reward.
    """

    gold: tuple[str, ...]
    found: tuple[frozenset[str], ...]
    kept: frozenset[str]
    hides: tuple[frozenset[int], ...]
    value: Value

    def gone(self, hidden: Collection[int]) -> frozenset[int]:
        """The branches that are hidden when these are."""
        return frozenset().union(*(self.hides[branch] for branch in hidden))

    def reward(self, hidden: Collection[int]) -> float:
        """The reward when these branches, and whatever they influence, are hidden."""
        gone = self.gone(hidden)
        shown = [documents for branch, documents in enumerate(self.found) if branch not in gone]
        lost = frozenset().union(*self.found).difference(self.kept, *shown)
        return self.value(frozenset(part for part, document in enumerate(self.gold) if document in lost))


class Coverage:
    """The evaluation by evidence. An episode without an answer earns 0, whatever is hidden."""

    trust = 1.0

    def __init__(self, scope: Scope) -> None:
        self._scope = scope

    def values(self, worlds: Sequence[World]) -> list[Valued]:
        """See `Evaluation`. Values are rewards, 0 to 1."""
        rollouts = dict.fromkeys(world.played for world in worlds)
        known = {played: evidence_of(played, self._scope) for played in rollouts}
        return [_valued(known[world.played], world) for world in worlds]


def _valued(evidence: Evidence, world: World) -> Valued:
    gone = evidence.gone(world.hidden)
    others = {world.played.threads[branch] for branch in gone - world.hidden}
    segments = world.played.record.episode.segments
    return Valued(
        value=evidence.reward(world.hidden),
        hidden_tokens=sum(len(segment.tokens) for segment in segments if segment.writer in others),
        empty=len(gone) == len(evidence.found),
    )


def evidence_of(played: Played, scope: Scope) -> Evidence:
    """Who found what in a rollout."""
    record, episode = played.record, played.record.episode

    def value(lost: frozenset[int]) -> float:
        return 0.0 if record.answer is None else played.environment.score(record.answer, lost=lost)

    return Evidence(
        gold=record.gold,
        found=tuple(frozenset(branch.documents) for branch in episode.branches),
        kept=frozenset(record.documents),
        hides=(
            influences(played.threads, episode.segments, episode.waits)
            if scope == "closure"
            else families([branch.place for branch in episode.branches])
        ),
        value=value,
    )
