"""Who stands where, and what memory that keeps.

A page beyond a segment's visible end is given back at once. A segment on which nobody stands is cache: it keeps its
pages and its own hold on its parent until it is evicted, so drop and rewind cost O(1) and the cascade is paid one leaf
at a time by whoever needs the memory.
"""

from __future__ import annotations

from collections.abc import Set

from octopus.core.cursor import Cursor
from octopus.core.errors import CapacityExceeded
from octopus.core.mount import Mount
from octopus.core.pool import NO_PAGE, PagePool, StatePool
from octopus.core.segment import Segment
from octopus.core.shortage import shortage
from octopus.core.thread import Thread


class Retention:
    """Counts the holders of every segment and gives back what nobody can see.

    Attributes:
        segments: All segments that have not been evicted, by index, in creation order.
        threads: All threads that have not been dropped, by id, in creation order.
        pages: The pool of KV pages; None in a graph that only records.
        states: The pool of recurrent-state slots; None for models without recurrent layers.
        cached: Segments on which nobody stands, least recently left first.
    """

    def __init__(self, pages: PagePool | None, states: StatePool | None) -> None:
        self.pages = pages
        self.states = states
        self.segments: dict[int, Segment] = {}
        self.threads: dict[int, Thread] = {}
        self.cached: dict[Segment, None] = {}

    def hold(self, cursor: Cursor) -> None:
        """Somebody stands at `cursor` from now on."""
        cursor.segment.references.add(cursor.length)
        self.cached.pop(cursor.segment, None)

    def let_go(self, cursor: Cursor) -> None:
        """Somebody who stood at `cursor` no longer does."""
        cursor.segment.references.remove(cursor.length)
        self._settle(cursor.segment)

    def hold_mount(self, mount: Mount) -> None:
        """A reader sees `mount` from now on."""
        mount.source.segment.mount_starts.add(-mount.first_offset)
        mount.source.segment.mount_ends.add(mount.source.length)
        self.hold(mount.source)

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
            thread.at_tip = thread.cursor.segment.tip = False
            self._settle(thread.cursor.segment)
        else:
            self.let_go(thread.cursor)

    def move(self, thread: Thread, target: Cursor) -> None:
        """`thread` goes from where it stands to `target`."""
        self.hold(target)  # Else leaving could make the target's segment cache for a moment.
        self.leave(thread)
        self.stand(thread, target)
        self.let_go(target)

    def _settle(self, segment: Segment) -> None:
        if segment.held:
            self.trim(segment)
        else:
            self.cached[segment] = None

    def trim(self, segment: Segment) -> None:
        """Gives back the pages of a held segment that nobody sees or needs.

        Those are the pages beyond its visible end; and, once its tokens are computed, the pages before the first token
        that a mount shows, if all who stand on it are mounts.
        """
        pool = self.pages
        if pool is None or not segment.held:
            return
        keep = pool.pages_for(segment.visible_end)
        unseen = [handle for handle in segment.pages[keep:] if handle != NO_PAGE]
        del segment.pages[keep:]
        segment.computed = min(segment.computed, segment.visible_end)
        if segment.seen_through_mounts_only and segment.computed >= segment.visible_end:
            first = min(-segment.mount_starts.maximum // pool.page_size, len(segment.pages))
            unseen += [handle for handle in segment.pages[:first] if handle != NO_PAGE]
            segment.pages[:first] = [NO_PAGE] * first
        pool.release(unseen)

    def make_room(self, *, pages: int, states: int, kept: Set[tuple[Segment, int]] = frozenset()) -> None:
        """Runs the memory ladder until so many pages and state slots are free.

        The rungs today are: states that nobody stands at, then cached segments, least recently left first. Both give up
        only what no thread, snapshot, child or mount can reach, so a refusal afterwards has changed nobody's view.

        Args:
            pages: Free pages wanted.
            states: Free state slots wanted.
            kept: States, as `(segment, length)`, that must stay though nobody stands there.

        Raises:
            CapacityExceeded: naming the need, what is free and who holds the rest.
        """
        self._drop_unneeded_states(states, kept)
        while self._short(pages, states) and self.cached:
            self.evict(next(iter(self.cached)))
            self._drop_unneeded_states(states, kept)  # What the evicted segment stood at may be unneeded now.
        if self._short(pages, states):
            raise CapacityExceeded(shortage(self.pages, self.states, self.threads.values(), pages=pages, states=states))

    def _short(self, pages: int, states: int) -> bool:
        return (self.pages is not None and self.pages.free < pages) or (
            self.states is not None and self.states.free < states
        )

    def _drop_unneeded_states(self, wanted: int, kept: Set[tuple[Segment, int]]) -> None:
        pool = self.states
        if pool is None or pool.free >= wanted:
            return
        unneeded = (
            (segment, length)
            for segment in self.segments.values()
            for length in list(segment.states)
            if not state_needed(segment, length) and (segment, length) not in kept
        )
        for segment, length in unneeded:
            if pool.free >= wanted:
                return
            pool.release([segment.states.pop(length)])

    def evict(self, segment: Segment) -> None:
        """Forgets a cached segment: its pages, its states, and its holds on its parent and on what it mounted."""
        del self.cached[segment]
        del self.segments[segment.index]
        if self.pages is not None:
            self.pages.release([handle for handle in segment.pages if handle != NO_PAGE])
        if self.states is not None:
            self.states.release(list(segment.states.values()))
        segment.pages, segment.states = [], {}
        segment.computed = 0
        for mount in segment.mounts:
            self.let_go_mount(mount)
        if segment.parent is not None:
            self.let_go(segment.parent)

    def check_pools(self) -> None:
        """Raises InvariantViolation unless every unit of both pools is free or owned by exactly one segment."""
        segments = self.segments.values()
        if self.pages is not None:
            self.pages.check(handle for segment in segments for handle in segment.pages if handle != NO_PAGE)
        if self.states is not None:
            self.states.check(handle for segment in segments for handle in segment.states.values())


def state_needed(segment: Segment, length: int) -> bool:
    """Whether the recurrent state after `length` tokens must stay: somebody is there, or it is the writer's last."""
    return segment.going_on_from(length) or (segment.tip and length == segment.computed)
