"""Who stands where, and what memory that keeps.

A page beyond a segment's visible end is given back at once. A segment on which nobody stands is cache: it keeps its
pages and its own hold on its parent until it is evicted, so drop and rewind cost O(1) and the cascade is paid one leaf
at a time by whoever needs the memory.
"""

from __future__ import annotations

import threading
from collections import OrderedDict
from typing import TYPE_CHECKING

from octopus.core.checkpoints import Checkpoints
from octopus.core.cursor import Cursor
from octopus.core.host import HostTier
from octopus.core.ladder import Ladder
from octopus.core.mount import Mount
from octopus.core.pool import NO_PAGE, PagePool, StatePool
from octopus.core.prefix import PrefixIndex
from octopus.core.references import NOBODY, LengthCounts, LengthMultiset
from octopus.core.segment import Segment
from octopus.core.stats import Counters
from octopus.core.swapping import Swapping
from octopus.core.thread import Thread

if TYPE_CHECKING:
    from octopus.core.step import Step


class Retention:
    """Counts the holders of every segment and gives back what nobody can see.

    Attributes:
        lock: Guards all of it; whoever calls takes it.
        condition: Of that lock: notified when a copy completes and when a step ends.
        segments: All segments that have not been evicted, by index, in creation order.
        threads: All threads that have not been dropped, by id, in creation order.
        pages: The pool of KV pages; None in a graph that only records.
        states: The pool of recurrent-state slots; None for models without recurrent layers.
        cached: Segments on which nobody stands, least recently left first.
        counters: What has happened so far.
        checkpoints: Which recurrent states are cache.
        prefixes: Where computed prefixes are found.
        swapping: What lies in the host tier or moves there and back.
        ladder: Makes room.
        claimed: States, as `(segment, length)`, that the open step starts from or will overwrite; none is given up.
        step: The open step; None between steps.
        in_step: The places that the open step computes; nothing that they see is taken away.
    """

    def __init__(self, pages: PagePool | None, states: StatePool | None, host: HostTier | None = None) -> None:
        self.lock = threading.RLock()
        self.condition = threading.Condition(self.lock)
        self.pages = pages
        self.states = states
        self.segments: dict[int, Segment] = {}
        self.threads: dict[int, Thread] = {}
        self.cached: OrderedDict[Segment, None] = OrderedDict()
        self.counters = Counters()
        self.prefixes = PrefixIndex(recording=pages is None)
        self.swapping = Swapping(self, host)
        self.checkpoints = Checkpoints(states, self.swapping.drop_state)
        self.ladder = Ladder(self)
        self.claimed: set[tuple[Segment, int]] = set()
        self.step: Step | None = None
        self.in_step: list[Cursor] = []

    # ---- standing ----

    def hold(self, cursor: Cursor) -> None:
        """Somebody stands at `cursor` from now on."""
        segment, length = cursor
        if not segment.tip and not segment.references:
            self.cached.pop(segment, None)
        segment.add_reference(length)

    def let_go(self, cursor: Cursor) -> None:
        """Somebody who stood at `cursor` no longer does."""
        segment, length = cursor
        segment.references.remove(length)
        if segment.states:
            self.checkpoints.offer(segment, length)
        self._settle(segment)

    def hold_mount(self, mount: Mount) -> None:
        """A reader sees `mount` from now on."""
        source = mount.source
        segment, length, start = source.segment, source.length, -mount.first_offset
        references, starts, ends = segment.references, segment.mount_starts, segment.mount_ends
        if start in starts.counts and length in ends.counts:  # Siblings that read one message: no calls are needed.
            references.counts[length] += 1
            references.size += 1
            starts.counts[start] += 1
            starts.size += 1
            ends.counts[length] += 1
            ends.size += 1
            return
        self.hold(source)
        if starts is NOBODY:
            segment.mount_starts, segment.mount_ends = starts, ends = LengthMultiset(), LengthCounts()
        starts.add(start)
        ends.add(length)

    def let_go_mount(self, mount: Mount) -> None:
        """The mounting segment is gone."""
        mount.source.segment.mount_starts.remove(-mount.first_offset)
        mount.source.segment.mount_ends.remove(mount.source.length)
        self.let_go(mount.source)

    def stand(self, thread: Thread, cursor: Cursor) -> None:
        """`thread` stands at `cursor` from now on; as the segment's writer at its end, it is the tip."""
        segment, length = cursor
        thread.cursor = cursor
        thread.at_tip = segment.writer == thread.id and length == len(segment.tokens)
        if thread.at_tip:
            segment.tip = True
            self.cached.pop(segment, None)
        else:
            self.hold(cursor)

    def leave(self, thread: Thread) -> None:
        """`thread` no longer stands where it stood."""
        if thread.at_tip:
            segment = thread.cursor.segment
            thread.at_tip = segment.tip = False
            if segment.states:
                self.checkpoints.offer(segment, segment.computed)
            self._settle(segment)
        else:
            self.let_go(thread.cursor)

    def leave_to_child(self, cursor: Cursor) -> None:
        """The writer, at the tip, goes on in a segment that it has opened there: that stands there now."""
        segment = cursor.segment
        segment.add_reference(cursor.length)
        segment.tip = False
        if segment.states:
            self.checkpoints.offer(segment, segment.computed)

    def move(self, thread: Thread, target: Cursor) -> None:
        """`thread` goes from where it stands to `target`."""
        self.hold(target)  # Else leaving could make the target's segment cache for a moment.
        self.leave(thread)
        self.stand(thread, target)
        self.let_go(target)
        self.checkpoints.forget_turns_beyond(thread)

    def _settle(self, segment: Segment) -> None:
        if segment.held:
            self.trim(segment)
        else:
            self.cached[segment] = None

    # ---- giving back ----

    def trim(self, segment: Segment) -> None:
        """Gives back the pages of a held segment that nobody sees or needs, and the states beyond its visible end.

        The pages are those beyond its visible end; and, once its tokens are computed, those before the first token that
        a mount shows, if all who stand on it are mounts.
        """
        pool = self.pages
        if pool is None or not segment.held:
            return
        end = segment.visible_end
        if segment.computed > end:
            self.forget_computed(segment, end)
        if segment.seen_through_mounts_only and segment.computed >= end:
            first = min(-segment.mount_starts.maximum // pool.page_size, len(segment.pages))
            if first:
                self._give_back_pages(segment, 0, first)
                self.prefixes.touch(segment)

    def forget_computed(self, segment: Segment, length: int) -> None:
        """Gives back the pages that only tokens from `length` on need, and the states beyond it."""
        assert self.pages is not None
        keep = self.pages.pages_for(length)
        self._give_back_pages(segment, keep, len(segment.pages))
        del segment.pages[keep:]
        if segment.computed > length:
            segment.computed = length
            self.prefixes.touch(segment)
        if segment.states or segment.host_states:
            self._give_back_states(segment, length)

    def evict(self, segment: Segment) -> None:
        """Forgets a cached segment: its pages, its states, and its holds on its parent and on what it mounted."""
        del self.cached[segment]
        del self.segments[segment.index]
        self.counters.evicted_segments += 1
        self.counters.evicted_pages += len(segment.pages)
        self.prefixes.forget(segment)
        if self.pages is not None:
            self._give_back_pages(segment, 0, len(segment.pages))
            self._give_back_states(segment, 0)
        segment.pages = []
        segment.computed = 0
        for mount in segment.mounts:
            self.let_go_mount(mount)
        if segment.parent is not None:
            self.let_go(segment.parent)

    def _give_back_pages(self, segment: Segment, start: int, stop: int) -> None:
        """The pages with index in `[start, stop)` go, wherever they lie; `NO_PAGE` stays in their place."""
        assert self.pages is not None
        handles = [handle for handle in segment.pages[start:stop] if handle != NO_PAGE]
        segment.pages[start:stop] = [NO_PAGE] * (stop - start)
        if segment.host_pages or segment in self.swapping.moving:
            handles = self.swapping.give_back_pages(segment, handles, start, stop)
        if handles:
            self.pages.release(handles)

    def _give_back_states(self, segment: Segment, length: int) -> None:
        """The states beyond `length` go, wherever they lie."""
        handles = [segment.states.pop(place) for place in list(segment.states) if place > length]
        if segment.host_states or segment in self.swapping.moving:
            handles = self.swapping.give_back_states(segment, handles, length)
        if handles and self.states is not None:
            self.states.release(handles)

    def make_room(self, *, pages: int, states: int) -> None:
        """See `Ladder.make_room`."""
        self.ladder.make_room(pages=pages, states=states)

    def check_pools(self) -> None:
        """Raises InvariantViolation unless every unit of all pools is free or has exactly one owner."""
        segments = self.segments.values()
        pages: list[int] = []
        for segment in segments:
            pages += segment.pages
        if NO_PAGE in pages:
            pages = [handle for handle in pages if handle != NO_PAGE]
        states = [handle for segment in segments for handle in segment.states.values()]
        states += [] if self.step is None else self.step.slots
        self.swapping.check_pools(pages, states)
