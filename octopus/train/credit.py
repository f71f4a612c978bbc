"""What each branch of an episode added: the reward of all branches minus the reward without one of them.

Coverage evaluates "without" by evidence. Hiding a branch hides with it every branch that it influences (`closure`), and
the answer then loses the parts whose document only hidden branches had found. That is exact for what retrieval brought,
and free: no model is run. It does not say what the others would have done instead.
"""

from __future__ import annotations

import statistics
from collections import defaultdict
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass

from octopus.core.cursor import Cursor
from octopus.core.segment import Segment
from octopus.core.waits import WaitEdge

Place = tuple[int, ...]
"""Of a branch in its episode: (0, 2) is the third child of the root, which is (0,)."""

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
        hides: For each branch the branches that are hidden with it: itself, and those that it influences.
        value: Reward by lost parts; of none it is the episode's reward.
    """

    gold: tuple[str, ...]
    found: tuple[frozenset[str], ...]
    kept: frozenset[str]
    hides: tuple[frozenset[int], ...]
    value: Value

    def reward(self, hidden: Collection[int]) -> float:
        """The reward when these branches, and whatever they influence, are hidden."""
        gone = frozenset().union(*(self.hides[branch] for branch in hidden))
        shown = [documents for branch, documents in enumerate(self.found) if branch not in gone]
        lost = frozenset().union(*self.found).difference(self.kept, *shown)
        return self.value(frozenset(part for part, document in enumerate(self.gold) if document in lost))


def left_out_terms(evidence: Evidence) -> tuple[float | None, ...]:
    """For each branch reward(full) - reward(without it); None where hiding it hides every branch.

    Two branches that found the same document get nothing for it, either of them: the term is a marginal, and does not
    sum to the reward.
    """
    full = evidence.reward(())
    everybody = len(evidence.found)
    return tuple(
        None if len(hidden) == everybody else full - evidence.reward([branch])
        for branch, hidden in enumerate(evidence.hides)
    )


def centred(group: Sequence[Mapping[Place, float | None]]) -> list[dict[Place, float]]:
    """Centres what branches added by the mean over the branches at the same place of the group's episodes.

    Such branches were given the same work, hard or easy. A place's mean is over all its defined terms; an undefined
    term becomes 0, and so does one that has nothing to be compared with. Nothing is divided by a deviation: left-out
    rewards are mostly equal, and their deviation is then 0.

    Args:
        group: For each episode of one task, its branches' terms by place.
    """
    at: defaultdict[Place, list[float]] = defaultdict(list)
    for terms in group:
        for place, term in terms.items():
            if term is not None:
                at[place].append(term)
    means = {place: statistics.fmean(terms) for place, terms in at.items()}
    return [
        {place: 0.0 if term is None else term - means[place] for place, term in terms.items()}
        for terms in group
    ]


def influences(
    branches: Sequence[int], segments: Sequence[Segment], waits: Sequence[WaitEdge] = ()
) -> tuple[frozenset[int], ...]:
    """For each branch the branches that see something of it, over any number of hops, itself included.

    A place is influenced by its segment's writer, by the place that the segment continues, by what it mounts, and by
    whoever the writer has waited for: in text mode, waiting is how words are handed over.

    Args:
        branches: Thread ids.
        segments: Those of the episode.
        waits: Those of the episode.

    Returns:
        Indices into `branches`.
    """
    index = {thread: number for number, thread in enumerate(branches)}
    known: dict[Cursor, frozenset[int]] = {}

    def influencers(place: Cursor) -> frozenset[int]:
        if place not in known:
            segment, length = place
            mounted = [Cursor(part.segment, part.stop) for mount in segment.mounts for part in mount.parts]
            awaited = [
                edge.awaited
                for edge in waits
                if edge.waiter.segment is segment and edge.waiter.length < length
            ]
            above = [] if segment.parent is None else [segment.parent]
            own = [index[segment.writer]] if segment.writer in index and length else []
            known[place] = frozenset(own).union(*map(influencers, [*above, *mounted, *awaited]))
        return known[place]

    hidden_with = [{number} for number in range(len(branches))]
    for segment in segments:
        if segment.writer in index:
            for number in influencers(Cursor(segment, len(segment.tokens))):
                hidden_with[number].add(index[segment.writer])
    return tuple(map(frozenset, hidden_with))
