"""The graph of an episode without some branches, as far as its answer sees it.

    root  q q q        f . . | (a) (b) r r | answer       (a), (b): mounts of what a and b committed
    a          s s s                                       b has mounted s s s
    b          t t t | (a) u u

Without a: the root's segment with the mounts is computed again, as a copy that mounts less; a is gone and leaves its
positions empty. What b wrote after it had read a is hidden with a (`closure`: it would not exist), or copied as well,
without a (`recompute`: the same words, thought without it). What b wrote before stays as it is. The copies stand in the
row beside what they are copies of, and recurrent layers begin them with the state at the place they go on from.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

from octopus.core.cursor import Cursor
from octopus.core.grafting import moved_mounts
from octopus.core.lineage import lineage
from octopus.core.mount import Mount
from octopus.core.segment import Segment
from octopus.rollout.episode import Episode
from octopus.train.credit.answer import answer_place
from octopus.train.credit.influence import Influence, families
from octopus.train.credit.world import Played, World

Scope = Literal["closure", "recompute"]


@dataclass(frozen=True, kw_only=True, slots=True)
class Counterfactual:
    """An episode's graph without some branches.

    Attributes:
        place: What stands for the answer's place; None if a hidden branch or its child wrote of the answer's line.
        hidden_tokens: How many tokens of other branches were hidden.
        empty: Whether no branch is left: each has hidden tokens, and none influences the answer any more.
    """

    place: Cursor | None
    hidden_tokens: int
    empty: bool


class AnswerLine:
    """An episode as its answer sees it.

    Attributes:
        place: Where the answer was given.
    """

    def __init__(self, episode: Episode) -> None:
        """The orchestrator must have sampled something."""
        self.place = answer_place(episode)
        self._segments = episode.segments
        self._branches = tuple(branch.thread for branch in episode.branches)
        self._families = families([branch.place for branch in episode.branches])
        self._influence = Influence(self._branches, episode.segments)  # By visibility alone: no waits.
        self._path: dict[Segment, int] = {}  # How far the answer's line goes in each segment of it.
        above: Cursor | None = self.place.cursor
        while above is not None:
            self._path[above.segment] = above.length
            above = above.segment.parent

    def without(self, hidden: Collection[int], scope: Scope) -> Counterfactual:
        """Hides branches, given as indices; see the file's top for what becomes of the others' tokens."""
        branches, threads = self._branches, frozenset(self._branches[index] for index in hidden)
        family = {branches[index] for member in hidden for index in self._families[member]}
        touched = {segment for segment in self._segments if self._influence.on(segment) & threads}
        gone = {
            segment
            for segment in touched
            if segment.writer in family or (scope == "closure" and segment not in self._path)
        }
        place, left = None, frozenset[int]()
        if gone.isdisjoint(self._path):
            place = self._moved(touched - gone, gone, scope)
            left = Influence(branches, lineage([place.segment])).on(place.segment)
        writers = {segment.writer for segment in gone if segment.tokens}
        others = frozenset(branches) - threads
        return Counterfactual(
            place=place,
            hidden_tokens=sum(len(segment.tokens) for segment in gone if segment.writer in others),
            empty=all(branch in writers and branch not in left for branch in branches),
        )

    def _moved(self, touched: set[Segment], gone: set[Segment], scope: Scope) -> Cursor:
        """The answer's place, resting on copies of what was touched. Of what was not, nothing is copied."""
        copies: dict[Segment, Segment] = {}

        def moved(segment: Segment) -> Segment | None:
            return None if segment in gone else copies.get(segment, segment)

        segment, length = self.place.cursor
        for original in lineage([segment]):
            if original in touched:
                # Beyond the answer's place stands the answer. Beyond the answer's line, which may have been rewound,
                # stands what does not exist in `closure`.
                cut = scope == "closure" or original is segment
                stop = self._path[original] if cut else len(original.tokens)
                copies[original] = _copy(original, stop, moved_mounts(original.mounts, moved), copies)
        return Cursor(copies.get(segment, segment), length)


def answer_lines(worlds: Sequence[World]) -> dict[Played, AnswerLine]:
    """The line of each rollout that gave an answer."""
    rollouts = dict.fromkeys(world.played for world in worlds)
    return {one: AnswerLine(one.record.episode) for one in rollouts if one.record.answer is not None}


def _copy(
    segment: Segment, length: int, mounts: tuple[Mount, ...], copies: Mapping[Segment, Segment]
) -> Segment:
    """The first tokens of a segment below its parent's copy, if that has one."""
    parent = segment.parent
    if parent is not None:
        parent = Cursor(copies.get(parent.segment, parent.segment), parent.length)
    copied = Segment(
        segment.index,
        parent,
        segment.start_position,
        segment.writer,
        segment.opened_at,
        segment.weights_version,
        mounts,
    )
    copied.tokens, copied.stamps = segment.tokens[:length], segment.stamps
    return copied
