"""Which recurrent states must stay, and which are cache.

Kept are states at which a thread, snapshot or child stands, a thread's last two turn boundaries, and the newest of a
segment that is being written. The rest goes, least recently needed first, as soon as somebody needs a slot.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Iterable, Set
from operator import attrgetter

from octopus.core.ancestry import lift, locate
from octopus.core.cursor import Cursor
from octopus.core.pool import StatePool
from octopus.core.segment import Segment
from octopus.core.thread import Thread

KEPT_TURNS = 2


class Checkpoints:
    """The states that are cache, least recently needed first.

    What is listed may have become needed again, or have gone: it is looked at again before it is given up. But whatever
    is cache is listed, since everything that may make it so offers it. What has gone is swept out when there is more of
    it than there are slots, so that it keeps no segment alive for long.
    """

    def __init__(self, pool: StatePool | None, give_up: Callable[[Segment, int], None]) -> None:
        """For the states of `pool`; `give_up` releases one."""
        self._pool = pool
        self._give_up = give_up
        self._listed: OrderedDict[tuple[Segment, int], None] = OrderedDict()

    def offer(self, segment: Segment, length: int) -> None:
        """Somebody no longer needs the state after `length` tokens; perhaps nobody does."""
        if length in segment.states and not state_needed(segment, length):
            self._listed[segment, length] = None
            self._listed.move_to_end((segment, length))
            if self._pool is not None and len(self._listed) > 2 * self._pool.capacity:
                self._listed = OrderedDict.fromkeys(place for place in self._listed if _is_cache(*place))

    def drop_idle(self, wanted: int, kept: Set[tuple[Segment, int]]) -> int:
        """Gives up cached states but those in `kept` until `wanted` slots are free or fenced. Returns how many went."""
        pool, dropped = self._pool, 0
        if pool is None:
            return 0
        spared = []
        while pool.free + pool.fenced < wanted and self._listed:
            place, _ = self._listed.popitem(last=False)
            if place in kept:
                spared.append(place)
            elif _is_cache(*place):
                self._give_up(*place)
                dropped += 1
        for place in reversed(spared):
            self._listed[place] = None
            self._listed.move_to_end(place, last=False)
        return dropped

    def drop_dead(self, wanted: int, segments: Iterable[Segment], kept: Set[tuple[Segment, int]]) -> int:
        """Gives up states that only cached lines stand at, the same way. Returns how many went.

        Costs a walk over all segments; `drop_idle` comes first.
        """
        pool, dropped = self._pool, 0
        if pool is None or pool.free + pool.fenced >= wanted:
            return 0
        living = _living_counts(segments)
        for segment in segments:
            for length in list(segment.states):
                alive = living.get((segment, length)) or segment.turns.get(length) or _newest(segment, length)
                if pool.free + pool.fenced < wanted and not alive and (segment, length) not in kept:
                    self._give_up(segment, length)
                    dropped += 1
        return dropped

    @property
    def idle(self) -> int:
        """Number of states that are cache."""
        return sum(_is_cache(*place) for place in self._listed)

    # ---- turn boundaries ----

    def end_turn(self, thread: Thread) -> Cursor:
        """The thread's cursor becomes its latest turn boundary; the last but two is forgotten. Returns the place."""
        place = locate(thread.cursor, thread.cursor.path_length)
        if place.path_length and place not in thread.turns:
            segment, length = place
            segment.turns = {**segment.turns, length: segment.turns.get(length, 0) + 1}
            turns = (*thread.turns, place)
            self._keep_turns(thread, turns[-KEPT_TURNS:])
        return place

    def forget_turns_beyond(self, thread: Thread) -> None:
        """Forgets the turn boundaries that are not on the thread's path any more."""
        if thread.turns:
            self._keep_turns(thread, tuple(turn for turn in thread.turns if _on_path(turn, thread.cursor)))

    def forget_turns(self, thread: Thread) -> None:
        """The thread has ended: none of its turn boundaries keeps a state."""
        if thread.turns:
            self._keep_turns(thread, ())

    def _keep_turns(self, thread: Thread, kept: tuple[Cursor, ...]) -> None:
        gone = [turn for turn in thread.turns if turn not in kept]
        thread.turns = kept
        for segment, length in gone:
            segment.turns[length] -= 1
            if not segment.turns[length]:
                del segment.turns[length]
                self.offer(segment, length)


def state_needed(segment: Segment, length: int) -> bool:
    """Whether the state after `length` tokens must stay: somebody is there, or it is the writer's last."""
    return segment.going_on_from(length) or length in segment.turns or _newest(segment, length)


def _newest(segment: Segment, length: int) -> bool:
    return segment.tip and length == segment.computed


def _is_cache(segment: Segment, length: int) -> bool:
    return length in segment.states and not state_needed(segment, length)


def _on_path(place: Cursor, cursor: Cursor) -> bool:
    passed = lift(cursor, place.segment.depth)
    return passed.segment is place.segment and passed.length >= place.length


def _living_counts(segments: Iterable[Segment]) -> dict[tuple[Segment, int], int]:
    """For each place how many stand there to go on, cached lines left out."""
    counts: dict[tuple[Segment, int], int] = {}
    for segment in sorted(segments, key=attrgetter("depth"), reverse=True):
        standing = {length: segment.going_on_count(length) for length in segment.references.distinct()}
        for length, count in standing.items():
            counts[segment, length] = counts.get((segment, length), 0) + count
        alive = segment.tip or any(counts[segment, length] for length in standing) or bool(segment.mount_ends)
        if not alive and segment.parent is not None:
            counts[segment.parent] = counts.get(segment.parent, 0) - 1
    return counts
