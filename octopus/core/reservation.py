"""Memory for a schedule: reserve all of it, act wave by wave, publish what each wave has written."""

from __future__ import annotations

from collections import Counter
from itertools import islice
from typing import NamedTuple

from octopus.core.ancestry import locate
from octopus.core.errors import CapacityExceeded, invariant
from octopus.core.pool import NO_PAGE, allocate_both, unit_of
from octopus.core.retention import Retention
from octopus.core.schedule import Stretch
from octopus.core.segment import Segment

NO_STATE = -1
"""Stands for zeros where a stretch reads its state, and for no state where it writes one."""


class StateMove(NamedTuple):
    """The state slots (units) that a stretch reads from and writes to, `NO_STATE` for none."""

    read: int
    write: int


class Reservation:
    """Pages and state slots for all stretches of a schedule, taken at once or not at all.

    A stretch that starts from a state that nobody else needs advances it in place. Between reserve and publish the
    pages belong to their segments, but `computed` does not reach into them yet.
    """

    def __init__(
        self, retention: Retention, stretches: list[Stretch], *, more_pages: int, more_states: int
    ) -> None:
        """Reserves; or, with room wanted for more besides, makes room for all and leaves the taking to `begin`.

        Raises CapacityExceeded, having changed nothing, if the memory ladder cannot make room.
        """
        self._retention = retention
        self._pending = dict.fromkeys(stretches)
        self._starts = Counter((stretch.segment, stretch.start) for stretch in stretches)
        self._slots: dict[Stretch, int] = {}
        self._taken: dict[Stretch, int] = {}  # States that are advanced in place, by the stretch that has begun.
        self._pages = self._pages_needed(stretches)
        self._begun = False
        retention.claimed = {place for stretch in stretches if (place := state_place(stretch)) is not None}
        fresh = self._make_room(sum(self._pages.values()) + more_pages, more_states)
        if not more_pages and not more_states:
            self._take(fresh)

    def begin(self) -> None:
        """Takes what room was made for, once that for the rest is taken. Raises CapacityExceeded if it has gone."""
        self._take(self._make_room(sum(self._pages.values()), 0))

    def _take(self, fresh: list[Stretch]) -> None:
        retention = self._retention
        pages, states = allocate_both(retention.pages, sum(self._pages.values()), retention.states, len(fresh))
        taken = iter(pages)
        for segment, count in self._pages.items():
            segment.pages = segment.pages or []
            segment.pages += islice(taken, count)
        if retention.states is not None:
            self._slots = dict(zip(fresh, states, strict=True))
        for pool in (retention.pages, retention.states):
            if pool is not None:
                pool.fence()
        self._begun = True

    def _make_room(self, pages: int, more_states: int) -> list[Stretch]:
        """Makes room for so many pages and a slot for each stretch that needs one of its own; returns those."""
        fresh = self._needing_slots()
        try:
            self._retention.make_room(pages=pages, states=len(fresh) + more_states)
        except CapacityExceeded:
            fewer = self._needing_slots()  # Who stood where a stretch starts may have been evicted meanwhile.
            if len(fewer) == len(fresh):
                raise
            fresh = fewer
            self._retention.make_room(pages=pages, states=len(fresh) + more_states)
        return fresh

    def _needing_slots(self) -> list[Stretch]:
        """The stretches that write their state into a slot of its own."""
        return [s for s in self._pending if self._retention.states is not None and not self._in_place(s)]

    def _pages_needed(self, stretches: list[Stretch]) -> dict[Segment, int]:
        pool = self._retention.pages
        if pool is None:
            return {}
        ends: dict[Segment, int] = {}
        for stretch in stretches:
            ends[stretch.segment] = max(stretch.stop, ends.get(stretch.segment, 0))
        return {s: pool.pages_for(end) - len(s.pages) for s, end in ends.items() if pool.pages_for(end) > len(s.pages)}

    def _in_place(self, stretch: Stretch) -> bool:
        """Whether the state that the stretch starts from is its own to overwrite: nobody needs it, no copy reads it."""
        segment, start = stretch.segment, stretch.start
        if start == 0 or self._starts[segment, start] > 1:
            return False
        copy = self._retention.swapping.moving.get(segment)
        copied = copy is not None and start in copy.states
        return not (copied or segment.going_on_from(start) or start in segment.turns)

    @property
    def slots(self) -> list[int]:
        """Handles of the state slots that belong to no segment until their stretches are published."""
        return [*self._slots.values(), *self._taken.values()]

    def state_move(self, stretch: Stretch) -> StateMove:
        """Where the stretch's state comes from and goes to. Ask when its wave begins, not before."""
        if self._retention.states is None:
            return StateMove(NO_STATE, NO_STATE)
        place = state_place(stretch)
        if stretch in self._slots:
            read = NO_STATE if place is None else unit_of(place[0].states[place[1]])
            return StateMove(read, unit_of(self._slots[stretch]))
        if stretch not in self._taken:
            self._taken[stretch] = stretch.segment.states.pop(stretch.start)
        unit = unit_of(self._taken[stretch])
        return StateMove(unit, unit)

    def publish(self, stretch: Stretch) -> None:
        """The stretch's KV and state are written: from now on others may see them."""
        segment, start, stop, again = stretch
        retention, counters = self._retention, self._retention.counters
        if stretch not in self._pending:
            invariant(False, f"{stretch} was published already, or is none of this step's")
        del self._pending[stretch]
        if not again:
            counters.tokens_computed += stop - start
            counters.tokens_recomputed += max(0, min(stop, segment.reached) - start)
            segment.computed, segment.reached = stop, max(stop, segment.reached)
            retention.prefixes.touch(segment)
        seals = retention.swapping.seals
        if seals is not None and not again:
            seals.written(segment, start, stop)
        if retention.states is not None:
            self._publish_state(stretch)
        if not again:
            retention.trim(segment)

    def _publish_state(self, stretch: Stretch) -> None:
        segment, start, stop, _ = stretch
        states = self._retention.states
        assert states is not None
        if stretch in self._slots:
            slot = self._slots.pop(stretch)
        else:
            slot = self._taken.pop(stretch) if stretch in self._taken else segment.states.pop(start)
        if stop in segment.states or stop in segment.host_states:
            states.release([slot])  # The state that is there, or away, stays: others may have gone on from it.
        else:
            segment.states = segment.states or {}
            segment.states[stop] = slot
            self._retention.checkpoints.offer(segment, stop)
        self._retention.checkpoints.offer(segment, start)

    def abandon(self) -> None:
        """Gives back what was reserved for the stretches that were not published. Nothing for a finished reservation.

        A state that a failed pass may have half overwritten is forgotten; it is computed again when it is needed.
        """
        if not self._begun:
            return
        self._begun = False
        pages, states = self._retention.pages, self._retention.states
        if pages is not None:
            for segment in {stretch.segment for stretch in self._pending}:
                keep = pages.pages_for(segment.computed)
                pages.release([handle for handle in segment.pages[keep:] if handle != NO_PAGE])
                del segment.pages[keep:]
        if states is not None:
            states.release(self.slots)
        for pool in (pages, states):
            if pool is not None:
                pool.lift()
        self._pending, self._taken, self._slots = {}, {}, {}


def state_place(stretch: Stretch) -> tuple[Segment, int] | None:
    """Where the state lies that the stretch starts from: segment and length; None for zeros."""
    segment, start = stretch.segment, stretch.start
    if start > 0:
        return segment, start
    if segment.path_start == 0 or segment.parent is None:
        return None
    place = locate(segment.parent, segment.path_start)
    return place.segment, place.length
