"""A step: what threads lack is planned, room is made for all of it at once, and then it is computed and published."""

from __future__ import annotations

import threading
from collections.abc import Collection, Sequence
from types import TracebackType

from octopus.core.cursor import Cursor
from octopus.core.errors import Contamination, StillLoading, invariant
from octopus.core.host import Transfer
from octopus.core.reach import reach
from octopus.core.reservation import Reservation, StateMove, state_place
from octopus.core.retention import Retention
from octopus.core.schedule import Schedule, Stretch
from octopus.core.segment import Segment
from octopus.core.thread import Thread
from octopus.core.visibility import view


class Step:
    """The one open step of a graph. Leaving its `with` block closes it, whatever was published.

    While it is open its threads' views stay where they are, even if the threads end, and other operations go on freely.

    Attributes:
        threads: Whom it makes ready.
        pins: Where they stood when it began; held until it ends.
        waves: Stretches by wave; those of one wave are independent of each other.
    """

    def __init__(
        self, retention: Retention, threads: Sequence[Thread], hidden: Collection[Thread], chunk_tokens: int
    ) -> None:
        """Plans and reserves, or raises having changed nothing: CapacityExceeded, StillLoading, Contamination.

        Called with the graph locked and no other step open.
        """
        self._retention = retention
        retention.step = self
        self._owner = threading.get_ident()
        self.threads = frozenset(threads)
        self.pins = [thread.cursor for thread in threads]
        for pin in self.pins:
            retention.hold(pin)
        retention.in_step = self.pins
        self._reservation: Reservation | None = None
        ready = False
        try:
            self._open(threads, hidden, chunk_tokens)
            ready = True
        finally:
            if not ready:
                self._close()
        for thread in threads:
            thread.preempted = False

    @property
    def mine(self) -> bool:
        """Whether this Python thread opened it."""
        return self._owner == threading.get_ident()

    def _open(self, threads: Sequence[Thread], hidden: Collection[Thread], chunk_tokens: int) -> None:
        retention, swapping = self._retention, self._retention.swapping
        self.waves: list[list[Stretch]] = []
        for _ in range(len(retention.segments) + 2):  # Each further round has fewer pages left to bring back.
            swapping.settle_losses()
            schedule = self._plan(threads, hidden, chunk_tokens)
            if self._reserve(schedule):
                self.waves = schedule.waves
                break
        else:
            invariant(False, "memory that does not come back is planned for again and again")
        if swapping.seals is not None:
            broken = swapping.seals.broken_among(reach(self.pins))
            if broken:
                raise Contamination(f"computed memory has changed: {broken[:3]}, seen by threads {_ids(threads)}")

    def _plan(self, threads: Sequence[Thread], hidden: Collection[Thread], chunk_tokens: int) -> Schedule:
        retention = self._retention
        schedule = Schedule(recurrent=retention.states is not None, chunk_tokens=chunk_tokens)
        if retention.swapping.lossy:
            for segment, length in _holes(self.pins):
                schedule.require_first(segment, length)
        for thread, cursor in zip(threads, self.pins, strict=True):
            schedule.require(cursor, hidden=thread in hidden)
        return schedule

    def _reserve(self, schedule: Schedule) -> bool:
        """Brings back what the schedule reads and reserves what it writes. False if something did not come back."""
        swapping, stretches = self._retention.swapping, schedule.stretches
        self._retention.in_step = [*self.pins, *(Cursor(stretch.segment, stretch.stop) for stretch in stretches)]
        pages, states = self._away(stretches)
        moving = [swapping.moving[segment] for segment in pages | states if segment in swapping.moving]
        if moving:
            _wait(self._retention, moving)
            return False
        more_pages, more_states = (sum(map(len, away.values())) for away in (pages, states))
        reservation = Reservation(
            self._retention, stretches, more_pages=more_pages, more_states=more_states
        )
        if pages or states:
            if self._away(stretches) != (pages, states):
                return False  # What the ladder evicted was the last that kept some of it.
            coming = [
                swapping.begin_restore(segment, pages.get(segment, []), states.get(segment, []))
                for segment in pages | states
            ]
            _wait(self._retention, coming)
            if not all(transfer.ok for transfer in coming):
                return False
            reservation.begin()
        self._reservation = reservation
        return True

    def _away(self, stretches: list[Stretch]) -> tuple[dict[Segment, list[int]], dict[Segment, list[int]]]:
        """What lies in the host tier of what the step reads: page indices and state lengths by segment."""
        pages: dict[Segment, list[int]] = {}
        states: dict[Segment, list[int]] = {}
        swapping, pool = self._retention.swapping, self._retention.pages
        if pool is None or not (swapping.away or swapping.moving):
            return pages, states
        for segment, stop in reach(self._retention.in_step).items():
            transfer = swapping.moving.get(segment)
            if transfer is not None and transfer.kind == "offload":
                transfer.recalled = True
            here = [index for index in segment.host_pages if index < pool.pages_for(stop)]
            if here:
                pages[segment] = sorted(here)
        for place in map(state_place, stretches):
            if place is not None and place[1] in place[0].host_states:
                lengths = states.setdefault(place[0], [])
                lengths += [] if place[1] in lengths else [place[1]]
        return pages, states

    @property
    def slots(self) -> list[int]:
        """Handles of the state slots that are the step's own."""
        return [] if self._reservation is None else self._reservation.slots

    # ---- acting ----

    def state_move(self, stretch: Stretch) -> StateMove:
        """Where the stretch's state comes from and goes to. Ask when its wave begins, not before."""
        with self._retention.lock:
            return self._open_reservation.state_move(stretch)

    def publish(self, stretch: Stretch) -> None:
        """The stretch's KV and state are written: from now on others may see them."""
        with self._retention.lock:
            self._open_reservation.publish(stretch)

    @property
    def _open_reservation(self) -> Reservation:
        invariant(self._reservation is not None, "the step is closed")
        return self._reservation  # type: ignore[return-value]

    def __enter__(self) -> Step:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """Gives back what was reserved and not published, and lets the next step begin. Idempotent."""
        with self._retention.lock:
            if self._retention.step is self:
                self._close()

    def _close(self) -> None:
        retention = self._retention
        if retention.swapping.seals is not None:
            retention.swapping.seals.flush()
        if self._reservation is not None:
            self._reservation.abandon()
            self._reservation = None
        retention.in_step, retention.claimed = [], set()
        for pin in self.pins:
            retention.let_go(pin)
        self.pins = []
        retention.step = None
        retention.condition.notify_all()


def _wait(retention: Retention, transfers: list[Transfer]) -> None:
    if not retention.swapping.wait(transfers):
        pages = sum(len(transfer.pages) for transfer in transfers if not transfer.done)
        raise StillLoading(f"{pages} pages are still being copied; try again, or give the host tier a longer timeout_s")


def _holes(cursors: Sequence[Cursor]) -> list[tuple[Segment, int]]:
    """What of the views was computed once and is lost, each after what it needs itself.

    What was never computed is no hole, but what it needs may have some.
    """
    holes: dict[Segment, int] = {}
    stack = [(cursor, False) for cursor in cursors]
    seen: set[Cursor] = set()
    while stack:
        cursor, ready = stack.pop()
        if ready:
            if cursor.length <= cursor.segment.reached:
                holes.pop(cursor.segment, None)  # So that the farthest need comes last.
                holes[cursor.segment] = cursor.length
            continue
        for part in view(cursor):
            place = Cursor(part.segment, part.stop)
            if part.segment.computed < part.stop and place not in seen:
                seen.add(place)
                stack += [(place, True), (place, False)]
    return list(holes.items())


def _ids(threads: Sequence[Thread]) -> list[int]:
    return [thread.id for thread in threads]
