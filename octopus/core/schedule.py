"""What must be computed before somebody can go on, and in which order.

A stretch is computed by one forward pass in a wave, after the waves before it: its path and the sources of its mounts
come first. With recurrent layers a stretch also ends wherever somebody stands, so that the state there can be kept.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

from octopus.core.ancestry import locate
from octopus.core.cursor import Cursor
from octopus.core.segment import Segment
from octopus.core.visibility import mounts_at_entry


class Stretch(NamedTuple):
    """Tokens `[start, stop)` of one segment to compute in one go.

    `again` says that their KV exists and stays as it is: the pass is after the state or the hidden states only.
    """

    segment: Segment
    start: int
    stop: int
    again: bool


class Goal(NamedTuple):
    """That the first `length` tokens of `segment` are computed, with the recurrent state after them if `state`."""

    segment: Segment
    length: int
    state: bool


class Schedule:
    """The waves of stretches that make a set of cursors ready.

    Args:
        recurrent: Whether the model has recurrent layers.
        chunk_tokens: Most tokens of one stretch.

    Attributes:
        waves: Stretches by wave; those of one wave are independent of each other.
    """

    def __init__(self, *, recurrent: bool, chunk_tokens: int) -> None:
        self.waves: list[list[Stretch]] = []
        self._recurrent = recurrent
        self._chunk_tokens = chunk_tokens
        self._ready: dict[Segment, dict[int, int]] = {}  # By length, the waves after which KV and state exist.
        self._planned: dict[Segment, int] = {}  # Tokens of the segment that will be computed.
        self._floor = 0  # The first wave that may be planned for.

    @property
    def stretches(self) -> list[Stretch]:
        """All stretches, in order."""
        return [stretch for wave in self.waves for stretch in wave]

    def require_first(self, segment: Segment, length: int) -> None:
        """Plans that the first `length` tokens of `segment` are computed, before all that is planned from now on."""
        self._fulfil([Goal(segment, length, False)])
        self._floor = len(self.waves)

    def require(self, cursor: Cursor, *, hidden: bool = False) -> None:
        """Plans what `cursor` lacks. With `hidden`, the pass of its last token is part of the plan in any case."""
        if cursor.path_length == 0:
            return
        segment, length = locate(cursor, cursor.path_length)
        goal = Goal(segment, length, self._recurrent)
        self._fulfil([goal])
        if hidden and length not in self._ready.get(segment, {}):
            self._fulfil(self._before_again(goal))
            self._plan_again(goal)

    def _fulfil(self, goals: Iterable[Goal]) -> None:
        stack = list(goals)
        while stack:
            goal = stack[-1]
            if self._wave_of(goal) is not None:
                stack.pop()
                continue
            missing = [place for place in self._before(goal) if self._wave_of(place) is None]
            if missing:
                stack += missing
            else:
                self._plan(stack.pop())

    def _wave_of(self, goal: Goal) -> int | None:
        """The number of waves after which `goal` holds; None if it is not planned yet."""
        segment, length, state = goal
        ready = self._ready.get(segment, {})
        if length in ready:
            return ready[length]
        if state:
            return 0 if length in segment.states or length in segment.host_states else None
        if length <= segment.computed:
            return 0
        return min((wave for end, wave in ready.items() if end > length), default=None)

    def _before(self, goal: Goal) -> list[Goal]:
        if self._start(goal.segment) >= goal.length:
            return self._before_again(goal)
        return self._entry(goal.segment, self._start(goal.segment))

    def _before_again(self, goal: Goal) -> list[Goal]:
        return self._entry(goal.segment, self._kept_before(goal)) if goal.state else []

    def _entry(self, segment: Segment, start: int) -> list[Goal]:
        """What must hold before the segment is computed from `start` on."""
        if start:
            return [Goal(segment, start, self._recurrent)]
        goals = [Goal(*mount.source, False) for mount in mounts_at_entry(segment)]
        if segment.path_start and segment.parent is not None:
            place = locate(segment.parent, segment.path_start)
            goals.append(Goal(place.segment, place.length, self._recurrent))
        return goals

    def _start(self, segment: Segment) -> int:
        return self._planned.get(segment, segment.computed)

    def _kept_before(self, goal: Goal) -> int:
        """The last length before the goal at which the segment keeps, or will keep, a state; 0 for none."""
        kept = [*goal.segment.states, *goal.segment.host_states, *self._ready.get(goal.segment, {})]
        return max((length for length in kept if length < goal.length), default=0)

    def _plan(self, goal: Goal) -> None:
        segment, start = goal.segment, self._start(goal.segment)
        if start >= goal.length:
            self._plan_again(goal)
            return
        standing = segment.references.between(start, goal.length) if self._recurrent else []
        cuts = [length for length in standing if segment.going_on_from(length)]
        if self._recurrent and segment.turns:
            cuts = sorted({*cuts, *(length for length in segment.turns if start < length < goal.length)})
        self._lay(segment, start, [*cuts, goal.length], again=False)
        self._planned[segment] = goal.length

    def _plan_again(self, goal: Goal) -> None:
        start = self._kept_before(goal) if goal.state else goal.length - 1
        self._lay(goal.segment, start, [goal.length], again=True)

    def _lay(self, segment: Segment, start: int, cuts: list[int], *, again: bool) -> None:
        wave = max((self._wave_of(place) or 0 for place in self._entry(segment, start)), default=0)
        wave = max(wave, self._floor)
        for cut in cuts:
            while start < cut:
                stop = min(cut, start + self._chunk_tokens)
                if wave == len(self.waves):
                    self.waves.append([])
                self.waves[wave].append(Stretch(segment, start, stop, again))
                wave += 1
                start = stop
                self._ready.setdefault(segment, {})[stop] = wave
