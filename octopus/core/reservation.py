"""Memory for a schedule: reserve all of it, act wave by wave, publish what each wave has written."""

from __future__ import annotations

from collections import Counter
from typing import NamedTuple

from octopus.core.ancestry import locate
from octopus.core.errors import CapacityExceeded
from octopus.core.pool import NO_PAGE, unit_of
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

    def __init__(self, retention: Retention, stretches: list[Stretch]) -> None:
        """Reserves. Raises CapacityExceeded, having changed nothing, if the memory ladder cannot make room."""
        self._retention = retention
        self._pending = list(stretches)
        self._starts = Counter((stretch.segment, stretch.start) for stretch in stretches)
        self._begun: set[Stretch] = set()
        self._slots: dict[Stretch, int] = {}
        pages = self._pages_needed(stretches)
        fresh = self._make_room(sum(pages.values()))
        if retention.pages is not None:
            for segment, count in pages.items():
                segment.pages += retention.pages.allocate(count)
        if retention.states is not None:
            self._slots = dict(zip(fresh, retention.states.allocate(len(fresh)), strict=True))

    def _make_room(self, pages: int) -> list[Stretch]:
        """Makes room for so many pages and a slot for each stretch that needs one of its own; returns those."""
        kept = {place for stretch in self._pending if (place := state_place(stretch)) is not None}
        fresh = self._fresh()
        try:
            self._retention.make_room(pages=pages, states=len(fresh), kept=kept)
        except CapacityExceeded:
            fewer = self._fresh()  # Who stood where a stretch starts may have been evicted meanwhile.
            if len(fewer) == len(fresh):
                raise
            fresh = fewer
            self._retention.make_room(pages=pages, states=len(fresh), kept=kept)
        return fresh

    def _fresh(self) -> list[Stretch]:
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
        """Whether the state that the stretch starts from is its own to overwrite."""
        segment, start = stretch.segment, stretch.start
        return start > 0 and self._starts[segment, start] == 1 and not segment.going_on_from(start)

    def state_move(self, stretch: Stretch) -> StateMove:
        """Where the stretch's state comes from and goes to. Ask when its wave begins, not before."""
        if self._retention.states is None:
            return StateMove(NO_STATE, NO_STATE)
        self._begun.add(stretch)
        place = state_place(stretch)
        read = NO_STATE if place is None else unit_of(place[0].states[place[1]])
        return StateMove(read, unit_of(self._slots[stretch]) if stretch in self._slots else read)

    def publish(self, stretch: Stretch) -> None:
        """The stretch's KV and state are written: from now on others may see them."""
        segment, start, stop, again = stretch
        self._pending.remove(stretch)
        if not again:
            segment.computed = stop
            self._retention.trim(segment)
        states = self._retention.states
        if states is None:
            return
        slot = self._slots.pop(stretch) if stretch in self._slots else segment.states.pop(start)
        if stop in segment.states:
            states.release([slot])  # The state that is there stays: others may have gone on from it.
        else:
            segment.states[stop] = slot

    def abandon(self) -> None:
        """Gives back what was reserved for the stretches that were not published. Nothing for a finished reservation.

        A state that a failed pass may have half overwritten is forgotten; it is computed again when it is needed.
        """
        pages, states = self._retention.pages, self._retention.states
        for stretch in self._pending:
            segment, start, _, _ = stretch
            if pages is not None:
                keep = pages.pages_for(segment.computed)
                pages.release([handle for handle in segment.pages[keep:] if handle != NO_PAGE])
                del segment.pages[keep:]
            if states is not None and stretch in self._begun and stretch not in self._slots:
                states.release([segment.states.pop(start)])
        if states is not None:
            states.release(list(self._slots.values()))
        self._pending, self._begun, self._slots = [], set(), {}


def state_place(stretch: Stretch) -> tuple[Segment, int] | None:
    """Where the state lies that the stretch starts from: segment and length; None for zeros."""
    segment, start = stretch.segment, stretch.start
    if start > 0:
        return segment, start
    if segment.path_start == 0 or segment.parent is None:
        return None
    place = locate(segment.parent, segment.path_start)
    return place.segment, place.length
