"""The graph of KV states: threads, and the primitives that move them.

Bookkeeping only: no tensor, no page. KV and states appear when `reservation.Reservation` publishes what a pass wrote.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from operator import index

from octopus.core.ancestry import locate
from octopus.core.audit import audit
from octopus.core.cursor import Cursor
from octopus.core.digest import Digests
from octopus.core.errors import ForkRefused, NotComputed
from octopus.core.ledger import Ledger
from octopus.core.limits import Limits
from octopus.core.mount import Placement
from octopus.core.pool import PagePool, StatePool
from octopus.core.reading import carry, new_mount, refuse_unreadable, snapshot_version
from octopus.core.retention import Retention
from octopus.core.rewinding import refuse_lost_state, rewind_target
from octopus.core.segment import Segment
from octopus.core.thread import Mark, Snapshot, Status, Thread
from octopus.core.trace import Trace
from octopus.core.waits import Wait, WaitEdge, WaitMode, WaitTable, WaitUntil


class Graph:
    """All threads of one backbone, and the segments they stand on.

    Every primitive may raise StaleHandle (the thread was dropped, or is another graph's), NotRunning (it waits or has
    ended) and StaleWeights (it was written by older weights). A refused call has changed nothing.
    """

    def __init__(
        self,
        *,
        pages: PagePool | None = None,
        states: StatePool | None = None,
        limits: Limits | None = None,
        trace: Trace | None = None,
        clock_s: Callable[[], float] = time.monotonic,
    ) -> None:
        """A graph without threads.

        Args:
            pages: Where KV pages come from. Without it the graph only records, and everything counts as computed.
            states: Where recurrent-state slots come from, for models with recurrent layers.
            limits: Fan-out and depth limits.
            trace: Gets every event; None keeps none.
            clock_s: Time in seconds for the deadlines of waits.
        """
        self.retention = Retention(pages, states)
        self.limits = limits or Limits()
        self.trace = trace
        self._ledger = Ledger(self.retention, trace)
        self._waits = WaitTable(self._ledger, clock_s)
        self._digests = Digests()

    @property
    def segments(self) -> list[Segment]:
        """All segments that have not been evicted, in creation order."""
        return list(self.retention.segments.values())

    @property
    def threads(self) -> list[Thread]:
        """All threads that have not been dropped, in creation order."""
        return list(self._ledger.threads.values())

    @property
    def waits(self) -> list[WaitEdge]:
        """Who went on after whom, in order, as far as both sides have not been evicted."""
        self._waits.prune()
        return self._waits.edges

    def thread(self) -> Thread:
        """A new root thread without tokens."""
        root = self._ledger.new_root()
        self._ledger.event("thread", root.id, root.cursor.segment.index)
        return root

    def fork(self, source: Thread | Snapshot, n: int = 1) -> list[Thread]:
        """`n` child threads that see what `source` sees. O(n); copies nothing, takes no page and no state slot.

        Forking a snapshot continues the line of a thread that has committed.

        Raises:
            ForkRefused: the fan-out or depth limit would be exceeded.
        """
        if isinstance(source, Snapshot):
            self._ledger.known_snapshot(source)
            parent = source.thread
        else:
            self._ledger.running(source, "fork")
            parent = source
        if not 1 <= n <= self.limits.fan_out:
            raise ForkRefused(f"fork takes 1 to {self.limits.fan_out} children, got {n}")
        if parent.depth >= self.limits.depth:
            raise ForkRefused(f"thread {parent.id} is {self.limits.depth} forks deep, which is the limit")
        cursor = source.cursor
        cursor.segment.handed_out = True
        children = [self._ledger.new_child(parent, cursor) for _ in range(n)]
        self._ledger.event("fork", parent.id, [child.id for child in children], cursor.segment.index, cursor.length)
        return children

    def append(self, thread: Thread, tokens: Sequence[int]) -> None:
        """Adds given or sampled tokens to the thread's line. Records them; their KV is computed later. O(tokens)."""
        self._ledger.running(thread, "append to")
        written = list(map(index, tokens))
        if not written:
            return
        if not thread.at_tip:
            self._ledger.open_segment(thread, thread.cursor.next_position)
        segment = thread.cursor.segment
        start = len(segment.tokens)
        segment.extend(written, self._ledger.event("append", thread.id, segment.index, start, written))
        thread.cursor = Cursor(segment, len(segment.tokens))

    def read_thread(
        self, reader: Thread, source: Thread, *, last: int | None = None, placement: Placement = "append"
    ) -> int:
        """Mounts the source's own tokens that the reader does not see yet; returns how many became visible.

        Own tokens are those of the source's path beyond the longest common prefix of both paths. A running source is
        read at its current cursor, a committed one at its last snapshot, by default only the snapshot's span. Zero
        tokens are legal and change nothing. Takes no page, no state slot and no copy.

        Args:
            source: Any thread, also the reader itself, an ancestor or a descendant.
            last: Only the last so many of the source's own tokens, counted before what is seen already is left out.
            placement: `append` gives the tokens the reader's next positions; `original` leaves them at their own.

        Raises:
            UnreadableSource: the source failed or was cancelled.
            PlacementRefused: `placement` is neither of the two.
        """
        self._ledger.running(reader, "read with")
        refuse_unreadable(self._ledger, source)
        mount = new_mount(reader, source, last, placement)
        if mount is None:
            return 0
        version, made = snapshot_version(self._ledger, source)
        carry(self._ledger, reader, mount)
        segment = reader.cursor.segment
        fields = (version, segment.index, segment.start_position, mount)
        mount.order = self._ledger.event("read", reader.id, source.id, *fields)
        if made:
            self._waits.wake(source)
        return mount.count

    def wait_threads(
        self,
        thread: Thread,
        others: Sequence[Thread],
        *,
        mode: WaitMode = "all",
        until: WaitUntil = "terminal",
        timeout_s: float | None = None,
    ) -> Wait:
        """Suspends `thread` until `others` have ended or have a newer version; cancels nobody.

        The returned wait is `done` at once when there is nothing to wait for; otherwise the thread is WAITING until
        what it waits for happens or `expire_waits` finds the deadline passed. Then `statuses` has one for each.

        Args:
            mode: `all` of them, or `any` one.
            until: `terminal`, or `snapshot`: a commit, or a read of it at a new place, from now on.
            timeout_s: Seconds from now after which it goes on anyway; None for never.

        Raises:
            WaitCycle: one of `others` waits, directly or through others, for `thread`.
        """
        self._ledger.running(thread, "wait with")
        return self._waits.begin(thread, tuple(others), mode, until, timeout_s)

    def expire_waits(self) -> list[Wait]:
        """Ends the waits whose deadline has passed and returns them, timed out."""
        return self._waits.expire()

    def mark(self, thread: Thread) -> Mark:
        """Names the thread's place for a later rewind. Holds nothing."""
        self._ledger.running(thread, "mark")
        segment, length = thread.cursor
        segment.handed_out = True
        self._ledger.event("mark", thread.id, segment.index, length)
        return Mark(thread=thread, cursor=thread.cursor)

    def rewind(self, thread: Thread, to: int | Mark | Snapshot, *, recompute: bool = True) -> None:
        """Moves the thread's own cursor back. What others see of the abandoned tokens stays theirs.

        Args:
            to: A mark or snapshot of this thread (exact, mounts included), or a count of its own tokens since the fork:
                the place right after that token, before any mount made there.
            recompute: Whether a recurrent state that is not kept there may be computed again by the next step.

        Raises:
            RewindRefused: beyond the fork point, another thread's, abandoned, or the state is gone and may not be
                recomputed.
        """
        self._ledger.running(thread, "rewind")
        target = rewind_target(thread, to)
        if not recompute:
            refuse_lost_state(self.retention, target)
        left = thread.cursor
        self.retention.move(thread, target)
        fields = (left.segment.index, left.length, target.segment.index, target.length)
        self._ledger.event("rewind", thread.id, *fields)

    def commit(self, thread: Thread, *, span: tuple[int, int] | None = None, keep_running: bool = False) -> Snapshot:
        """A snapshot with version and digest; ends the thread unless `keep_running`.

        Costs O(1) and the digest of the tokens since the last one.

        Args:
            span: Own tokens `[start, stop)` since the fork point that readers get by default; None for all.
            keep_running: Whether the thread goes on.

        Raises:
            NotComputed: the KV of some token is not computed yet.
            ValueError: `span` is not within the thread's own tokens.
        """
        self._ledger.running(thread, "commit")
        if span is not None and not 0 <= span[0] <= span[1] <= thread.own_tokens:
            raise ValueError(f"span must lie within the {thread.own_tokens} own tokens, got {span}")
        if not self.is_computed(thread.cursor):
            raise NotComputed(f"thread {thread.id} has tokens without KV; let the engine compute them before commit")
        snapshot = self._ledger.new_snapshot(thread, digest=self._digests.of(thread.cursor), span=span)
        if not keep_running:
            self._end(thread, Status.COMMITTED)
        fields = (snapshot.version, snapshot.digest, span, keep_running)
        self._ledger.event("commit", thread.id, thread.cursor.segment.index, thread.cursor.length, *fields)
        self._waits.wake(thread)
        return snapshot

    def cancel(self, thread: Thread) -> None:
        """Ends the thread and its descendants that have not ended, and wakes who waits for them. Idempotent."""
        self._ledger.known(thread)
        stack, ended = [thread], []
        while stack:
            one = stack.pop()
            stack += one.children.values()
            if not one.status.terminal:
                self._give_up(one, Status.CANCELLED)
                self._ledger.event("cancel", one.id)
                ended.append(one)
        self._waits.wake(*ended)

    def fail(self, thread: Thread, reason: str) -> None:
        """Ends the thread as FAILED for `reason`: an engine's word, not the agent's. No change to an ended thread."""
        self._ledger.known(thread)
        if thread.status.terminal:
            return
        thread.reason = reason
        self._give_up(thread, Status.FAILED)
        self._ledger.event("fail", thread.id, reason)
        self._waits.wake(thread)

    def drop(self, thread: Thread) -> None:
        """Gives the handle back: nobody can name the thread any more. Readers and children keep what they see.

        A thread that has not ended is cancelled first (its descendants are not). Raises StaleHandle the second time.
        """
        self._ledger.known(thread)
        if not thread.status.terminal:
            self._end(thread, Status.CANCELLED)
        self._ledger.release_snapshots(thread)
        self._ledger.event("drop", thread.id)
        self._waits.wake(thread)
        self._ledger.forget(thread)

    def advance_weights(self) -> int:
        """The weights have changed: nothing written so far may be read. Returns the new version."""
        self._ledger.weights_version += 1
        self._ledger.event("weights", self._ledger.weights_version)
        return self._ledger.weights_version

    def refuse_unready(self, thread: Thread) -> None:
        """Raises StaleHandle, NotRunning or StaleWeights unless the thread can go on."""
        self._ledger.running(thread, "go on with")

    def is_computed(self, cursor: Cursor) -> bool:
        """Whether the KV of every token on the path exists. Always, in a graph that only records."""
        place = locate(cursor, cursor.path_length)
        return self.retention.pages is None or place.length <= place.segment.computed

    def check(self) -> None:
        """Recounts everything that is kept count of. Raises InvariantViolation naming what is broken."""
        audit(self.retention)

    def _end(self, thread: Thread, status: Status) -> None:
        if thread.wait is not None:
            self._waits.close(thread.wait)
        thread.status = status
        self.retention.leave(thread)

    def _give_up(self, thread: Thread, status: Status) -> None:
        self._end(thread, status)
        self._ledger.release_snapshots(thread)
