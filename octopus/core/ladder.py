"""The memory ladder: what is done, in which order, when a pool cannot give what is asked for.

evict (what nobody can reach) -> offload (what no running thread sees) -> preempt (what the least important running
thread alone sees) -> refuse. A rung that gave nothing is not tried again in the same round.
"""

from __future__ import annotations

import time
from collections import defaultdict
from collections.abc import Callable, Set
from typing import TYPE_CHECKING

from octopus.core.cursor import Cursor
from octopus.core.errors import CapacityExceeded
from octopus.core.host import Transfer
from octopus.core.pool import NO_PAGE
from octopus.core.reach import Reach, reach
from octopus.core.segment import Segment
from octopus.core.shortage import shortage
from octopus.core.thread import RUNNING, Thread

if TYPE_CHECKING:
    from octopus.core.retention import Retention

Kept = Set[tuple[Segment, int]]
"""States, as `(segment, length)`, that must stay though nobody stands there."""


class Ladder:
    """Makes room in the pools of a retention.

    Attributes:
        seconds: Wall time spent on each rung, by whether it gave anything.
        refused_s: Wall time of the rounds that ended in a refusal, their rungs included.
    """

    def __init__(self, retention: Retention, *, clock_s: Callable[[], float] = time.perf_counter) -> None:
        self.seconds: defaultdict[tuple[str, bool], float] = defaultdict(float)
        self.refused_s = 0.0
        self._retention = retention
        self._clock_s = clock_s

    def make_room(self, *, pages: int, states: int) -> None:
        """Runs the ladder until so many pages and state slots are free. Takes none of them.

        Args:
            pages: Free pages wanted.
            states: Free state slots wanted.

        Raises:
            CapacityExceeded: naming the need, what is free and who holds the rest. No view has changed.
        """
        if not self._short(pages, states):
            return
        counters, started_s = self._retention.counters, self._clock_s()
        if not self._hopeless(pages, states):
            rungs: tuple[tuple[str, Callable[[int, int, Kept], bool]], ...] = (
                ("evict", self._evict),
                ("offload", self._offload),
                ("preempt", self._preempt),
            )
            for name, rung in rungs:
                began_s = self._clock_s()
                helped = rung(pages, states, self._retention.claimed)
                self.seconds[name, helped] += self._clock_s() - began_s
                setattr(counters, f"{name}_tried", getattr(counters, f"{name}_tried") + 1)
                setattr(counters, f"{name}_helped", getattr(counters, f"{name}_helped") + helped)
                if not self._short(pages, states):
                    return
        counters.refused += 1
        self.refused_s += self._clock_s() - started_s
        raise CapacityExceeded(shortage(self._retention, pages=pages, states=states))

    def _short(self, pages: int, states: int) -> bool:
        pool, slots = self._retention.pages, self._retention.states
        return (pool is not None and pool.free < pages) or (slots is not None and slots.free < states)

    def _unmet(self, pages: int, states: int) -> bool:
        """Whether more must be given up: what a fence holds back counts as given up already."""
        pool, slots = self._retention.pages, self._retention.states
        return (pool is not None and pool.free + pool.fenced < pages) or (
            slots is not None and slots.free + slots.fenced < states
        )

    def _hopeless(self, pages: int, states: int) -> bool:
        pool, slots = self._retention.pages, self._retention.states
        return (pool is not None and pool.capacity < pages) or (slots is not None and slots.capacity < states)

    # ---- evict ----

    def _evict(self, pages: int, states: int, kept: Kept) -> bool:
        retention, counters = self._retention, self._retention.counters
        before = counters.evicted_segments + counters.evicted_states
        self._drop_states(states, kept)
        while self._unmet(pages, states) and (leaf := self.oldest_leaf()) is not None:
            retention.evict(leaf)
            self._drop_states(states, kept)  # What the evicted segment stood at may be unneeded now.
        return counters.evicted_segments + counters.evicted_states > before

    def _drop_states(self, wanted: int, kept: Kept) -> None:
        retention = self._retention
        dropped = retention.checkpoints.drop_idle(wanted, kept)
        if retention.cached:
            dropped += retention.checkpoints.drop_dead(wanted, retention.segments.values(), kept)
        retention.counters.evicted_states += dropped

    def oldest_leaf(self) -> Segment | None:
        """The least recently left segment on which nobody stands and that no copy needs; None if there is none."""
        moving = self._retention.swapping.moving
        return next((segment for segment in self._retention.cached if segment not in moving), None)

    # ---- offload ----

    def _offload(self, pages: int, states: int, kept: Kept) -> bool:
        """Memory that no running thread sees goes to the host tier, least recently opened first."""
        if self._retention.swapping.host is None:
            return False
        return self._offload_all_but(reach([*self._running(), *self._retention.in_step]), pages, states, kept)

    def _offload_all_but(self, seen: Reach, pages: int, states: int, kept: Kept) -> bool:
        """Offloads what lies beyond `seen` until the copies under way would be enough; waits for them."""
        retention, swapping = self._retention, self._retention.swapping
        before = self._free()
        for segment in list(retention.segments.values()):
            coming = self._coming()
            if not self._unmet(pages - coming[0], states - coming[1]):
                break
            self.offload_beyond(segment, seen.get(segment, 0), kept)
        swapping.wait(self._leaving())
        return self._free() > before

    def _leaving(self) -> list[Transfer]:
        """The copies under way that will free memory of the device."""
        moving = self._retention.swapping.moving.values()
        return [transfer for transfer in moving if transfer.kind == "offload" and not transfer.recalled]

    def _coming(self) -> tuple[int, int]:
        """How many pages and states they will free."""
        leaving = self._leaving()
        return sum(len(transfer.pages) for transfer in leaving), sum(len(transfer.states) for transfer in leaving)

    def offload_beyond(self, segment: Segment, length: int, kept: Kept = frozenset()) -> int:
        """Begins to offload what of `segment` lies beyond `length`. Returns how many pages."""
        pool = self._retention.pages
        if pool is None or not segment.computed:
            return 0
        lengths = [n for n in segment.states if n > length and (segment, n) not in kept]
        first = pool.pages_for(length)
        return self._retention.swapping.begin_offload(segment, first, lengths)

    def offload(self, thread: Thread) -> int:
        """Begins to offload what the places of `thread` see and no running thread does. Returns how many pages."""
        seen = reach([*self._running(), *self._retention.in_step])
        places = [thread.cursor] if not thread.status.terminal else []
        own = reach([*places, *(snapshot.cursor for snapshot in thread.snapshots.values())])
        return sum(self.offload_beyond(segment, seen.get(segment, 0)) for segment in own)

    def _running(self) -> list[Cursor]:
        """Where the running threads stand whose memory has not been taken away."""
        threads = self._retention.threads.values()
        return [thread.cursor for thread in threads if thread.status is RUNNING and not thread.preempted]

    def _free(self) -> int:
        pool, slots = self._retention.pages, self._retention.states
        return (pool.free + pool.fenced if pool else 0) + (slots.free + slots.fenced if slots else 0)

    # ---- preempt ----

    def _preempt(self, pages: int, states: int, kept: Kept) -> bool:
        """Running threads that are not in the step lose what they alone see, the least important and youngest first."""
        before, victims = self._free(), self.victims()
        if not self._would_do(victims, pages, states):
            return False
        for victim in victims:
            coming = self._coming()
            if not self._unmet(pages - coming[0], states - coming[1]):
                break
            self.preempt(victim, kept)
        return self._free() > before

    def _would_do(self, victims: list[Thread], pages: int, states: int) -> bool:
        """Whether taking all that the step does not see from all victims could be enough: else nothing is taken."""
        seen = reach(self._retention.in_step)
        coming_pages, coming_states = self._coming()
        for segment in reach(victim.cursor for victim in victims):
            if segment not in self._retention.swapping.moving:
                first = self._retention.pages.pages_for(seen.get(segment, 0)) if self._retention.pages else 0
                coming_pages += sum(handle != NO_PAGE for handle in segment.pages[first:])
                coming_states += len(segment.states)
        return not self._unmet(pages - coming_pages, states - coming_states)

    def victims(self) -> list[Thread]:
        """Running threads that may be preempted, first the one that goes first."""
        step = self._retention.step
        stepping = step.threads if step is not None else frozenset()
        threads = [
            thread
            for thread in self._retention.threads.values()
            if thread.status is RUNNING and not thread.preempted and thread not in stepping
        ]
        return sorted(threads, key=lambda thread: (thread.priority, -thread.id))

    def preempt(self, thread: Thread, kept: Kept = frozenset()) -> int:
        """Takes from `thread` what it alone sees: to the host tier as far as that has room, else to be computed again.

        Returns how many pages became free or are on their way to the host tier.
        """
        retention, swapping = self._retention, self._retention.swapping
        if not self._idle(thread):
            return 0
        thread.preempted = True
        seen = reach([*self._running(), *retention.in_step])
        own = reach([thread.cursor])
        going = 0
        if swapping.host is not None:
            for segment in reversed(own):  # From the root on, so that what is left to drop is the path's end.
                going += self.offload_beyond(segment, seen.get(segment, 0), kept)
            swapping.wait([swapping.moving[segment] for segment in own if segment in swapping.moving])
            retention.counters.preempted_swapped += going > 0
        if not thread.preempted or not self._idle(thread):
            return going  # Somebody has taken it into a step, or ended it, while we waited.
        dropped = self._drop_private(thread, reach([*self._running(), *retention.in_step]), kept)
        retention.counters.preempted_recomputed += dropped > 0
        return going + dropped

    def _idle(self, thread: Thread) -> bool:
        """Whether the thread has not ended and is not in the open step."""
        step = self._retention.step
        return not thread.status.terminal and (step is None or thread not in step.threads)

    def _drop_private(self, thread: Thread, seen: Reach, kept: Kept) -> int:
        """Drops what is left on the device of the segments at the path's end that nobody else stands on.

        From the end upwards, and no further than a segment of which something stays: what is computed never stands on
        what is not. Returns how many pages went.
        """
        retention, dropped = self._retention, 0
        place: Cursor | None = thread.cursor
        while place is not None and place.segment not in seen and place.segment not in retention.swapping.moving:
            segment, place = place.segment, place.segment.parent
            if len(segment.references) + segment.tip != 1:
                break
            for length in [n for n in segment.states if (segment, n) not in kept]:
                retention.swapping.drop_state(segment, length)
            first = next((i for i, handle in enumerate(segment.pages) if handle != NO_PAGE), None)
            if first is not None and retention.pages is not None:
                dropped += sum(handle != NO_PAGE for handle in segment.pages)
                retention.forget_computed(segment, first * retention.pages.page_size)
            if segment.computed:
                break
        return dropped
