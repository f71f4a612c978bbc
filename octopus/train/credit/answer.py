"""Where an episode gave its answer, and what is held to be the right one."""

from __future__ import annotations

from dataclasses import dataclass

from octopus.core.cursor import Cursor
from octopus.core.segment import Segment
from octopus.rollout.codec import Codec
from octopus.rollout.episode import Episode, SampledToken
from octopus.train.credit.world import Played


@dataclass(frozen=True, kw_only=True, slots=True)
class AnswerPlace:
    """The place before the orchestrator's last turn, in which it answered.

    Attributes:
        cursor: Right before the turn's first token.
        tokens: The turn as it was sampled.
        draws: How many random draws the orchestrator had made before.
        order: An event number after all that the answer rests on.
    """

    cursor: Cursor
    tokens: tuple[int, ...]
    draws: int
    order: int

    def continued_by(self, tokens: tuple[int, ...], cursor: Cursor) -> Segment:
        """A segment of given tokens that goes on from `cursor`, which stands for this place in some world."""
        before = self.cursor.segment
        segment = Segment(
            before.index, cursor, cursor.next_position, before.writer, self.order, before.weights_version
        )
        segment.tokens, segment.stamps = list(tokens), [(0, self.order)]
        return segment


@dataclass(frozen=True, kw_only=True, slots=True)
class ReferenceAnswer:
    """The turn whose likelihood a world is valued by.

    Attributes:
        tokens: The turn.
        weight: What its mean log-probability is multiplied by.
    """

    tokens: tuple[int, ...]
    weight: float


def answer_place(episode: Episode) -> AnswerPlace:
    """Where the orchestrator's last run of sampled tokens begins. It must have sampled some."""
    branches = {branch.thread for branch in episode.branches}
    own = [token for token in episode.sampled if token.thread not in branches]
    first = len(own) - 1
    while first and _next_to(own[first - 1], own[first]):
        first -= 1
    segment, offset = own[first].segment, own[first].offset
    return AnswerPlace(
        cursor=Cursor(segment, offset),
        tokens=tuple(segment.tokens[offset : own[-1].offset + 1]),
        draws=first,
        order=segment.written_at(own[-1].offset) + 1,
    )


def reference_answer(played: Played, codec: Codec | None, place: AnswerPlace) -> ReferenceAnswer:
    """The right answer, if the environment knows one; else the episode's own, weighted by what it earned.

    A branch that misled the orchestrator makes the episode's own answer likelier, and the right one less likely: so the
    right one is asked for. Where there is none, a wrong answer pays nobody. A chat, which has no
    codec, spells one answer in many ways, none of which is the right one, so there the episode's own is taken as well.
    """
    right = None if codec is None else played.environment.reference(codec)
    if right is not None:
        return ReferenceAnswer(tokens=tuple(right), weight=1.0)
    return ReferenceAnswer(tokens=place.tokens, weight=played.record.episode.reward)


def _next_to(one: SampledToken, other: SampledToken) -> bool:
    return one.segment is other.segment and one.offset + 1 == other.offset
