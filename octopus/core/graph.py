"""The graph of KV states: threads, and the primitives that move them.

Bookkeeping only: no tensor, no page. KV and states appear when a `Step` publishes what a pass wrote.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from operator import index
from typing import Any

from octopus.core.ancestry import locate
from octopus.core.awaiting import settled, waited_for
from octopus.core.cursor import Cursor, new_cursor
from octopus.core.ending import Endings
from octopus.core.errors import ForkRefused, NotComputed
from octopus.core.host import HostTier
from octopus.core.limits import Limits
from octopus.core.mount import Placement
from octopus.core.namespace import PLAIN, Namespace
from octopus.core.pool import PagePool, StatePool
from octopus.core.prefix import Match
from octopus.core.reading import read
from octopus.core.rewinding import rewind
from octopus.core.seals import Seals
from octopus.core.store import Store
from octopus.core.thread import RUNNING, Mark, Snapshot, Thread
from octopus.core.trace import Trace
from octopus.core.waits import Wait, WaitEdge, WaitMode, WaitTable, WaitUntil


class Graph(Store):
    """All threads of one backbone, and the segments they stand on.

    Every primitive may raise StaleHandle (the thread was dropped, or is another graph's), NotRunning (it waits or has
    ended) and StaleWeights (it was written by older weights). A refused call has changed nothing.

    Three primitives run for every token or branch: `fork`, `append` and `read_thread`. They spell out the lock, the
    guard and the event, which the others call: that is a third of their time.
    """

    def __init__(
        self,
        *,
        pages: PagePool | None = None,
        states: StatePool | None = None,
        host: HostTier | None = None,
        seals: Seals | None = None,
        limits: Limits | None = None,
        trace: Trace | None = None,
        clock_s: Callable[[], float] = time.monotonic,
    ) -> None:
        """A graph without threads.

        Args:
            pages: Where KV pages come from. Without it the graph only records, and everything counts as computed.
            states: Where recurrent-state slots come from, for models with recurrent layers.
            host: Where memory goes that no running thread sees.
            seals: Fingerprints of computed memory.
            limits: Fan-out and depth limits.
            trace: Gets every event; None keeps none.
            clock_s: Time in seconds for the deadlines of waits.
        """
        super().__init__(pages, states, host, seals, trace)
        self.limits = limits or Limits()
        self.clock_s = clock_s
        self._waits = WaitTable(self._ledger, clock_s)
        self._endings = Endings(self._ledger, self._waits)

    @property
    def waits(self) -> list[WaitEdge]:
        """Who went on after whom, in order, as far as both sides have not been evicted."""
        with self.lock:
            self._waits.prune()
            return self._waits.edges

    def thread(self, *, namespace: Namespace = PLAIN, priority: int = 0) -> Thread:
        """A new root thread without tokens. Its children inherit namespace and priority."""
        with self.lock:
            root = self._ledger.new_root(namespace, priority)
            self._ledger.event("thread", root.id, root.cursor.segment.index)
            return root

    def thread_from(
        self, tokens: Any, *, namespace: Namespace = PLAIN, priority: int = 0
    ) -> tuple[Thread, Match]:
        """A new root thread that holds `tokens`: what `match` finds of them is shared, the rest appended."""
        with self.lock:
            found = self.match(tokens, namespace=namespace)
            if found.cursor is None:
                root = self.thread(namespace=namespace, priority=priority)
            else:
                root = self.begin_at(found.cursor, priority=priority)
            self.append(root, tokens[found.tokens :])
            return root, found

    def begin_at(self, cursor: Cursor, *, priority: int) -> Thread:
        """A new root thread, of the path's namespace, at a place of a path without mounts, all of which is its own."""
        with self.lock:
            root = self._ledger.new_root(cursor.segment.namespace, priority, cursor)
            root.fork_cursor = locate(cursor, 0)
            self._ledger.event("adopt", root.id, cursor.segment.index, cursor.length)
            self.retention.trim(cursor.segment)
            return root

    def fork(self, source: Thread | Snapshot, n: int = 1) -> list[Thread]:
        """`n` child threads that see what `source` sees. O(n); copies nothing, takes no page and no state slot.

        Forking a snapshot continues the line of a thread that has committed.

        Raises:
            ForkRefused: the fan-out or depth limit would be exceeded.
        """
        lock, ledger, limits = self.lock, self._ledger, self.limits
        lock.acquire()
        try:
            if isinstance(source, Snapshot):
                ledger.known_snapshot(source)
                parent = source.thread
            else:
                parent = source
                known = ledger.threads.get(parent.id) is parent and parent.weights_version == ledger.weights_version
                if not known or parent.status is not RUNNING:
                    ledger.running(parent, "fork")
            if not 1 <= n <= limits.fan_out:
                raise ForkRefused(f"fork takes 1 to {limits.fan_out} children, got {n}")
            if parent.depth >= limits.depth:
                raise ForkRefused(f"thread {parent.id} is {limits.depth} forks deep, which is the limit")
            cursor = source.cursor
            cursor.segment.handed_out = True
            return ledger.new_children(parent, cursor, n)
        finally:
            lock.release()

    def append(self, thread: Thread, tokens: Sequence[int]) -> None:
        """Adds given or sampled tokens to the thread's line. Records them; their KV is computed later. O(tokens)."""
        lock, ledger = self.lock, self._ledger
        lock.acquire()
        try:
            known = ledger.threads.get(thread.id) is thread and thread.weights_version == ledger.weights_version
            if not known or thread.status is not RUNNING:
                ledger.running(thread, "append to")
            written = [index(tokens[0])] if len(tokens) == 1 else [*map(index, tokens)]
            if not written:
                return
            if not thread.at_tip:
                ledger.open_segment(thread, thread.cursor.next_position)
            cursor = thread.cursor
            segment, start = cursor.segment, cursor.length
            ledger.order = order = ledger.order + 1
            if ledger.trace is not None:
                ledger.trace.events.append((order, "append", thread.id, segment.index, start, written))
            if start:
                segment.stamps.append((start, order))
                segment.tokens += written
            else:
                segment.stamps, segment.tokens = [(start, order)], written.copy()
            thread.cursor = new_cursor((segment, start + len(written)))
            if self.retention.pages is None:
                self.retention.prefixes.touch(segment)
        finally:
            lock.release()

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
        lock = self.lock
        lock.acquire()
        try:
            return read(self._ledger, self._waits, reader, source, last, placement)
        finally:
            lock.release()

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
        with self.lock:
            self._ledger.running(thread, "wait with")
            return self._waits.begin(thread, tuple(others), mode, until, timeout_s)

    async def wait_async(self, thread: Thread, others: Sequence[Thread], **how: Any) -> Wait:
        """`wait_threads`, and the wait when it is done. Blocks no event loop; a cancelled task withdraws the wait."""
        return await settled(self, self.wait_threads(thread, others, **how))

    def block(self, wait: Wait, timeout_s: float | None = None) -> bool:
        """Blocks this Python thread until `wait` is done, at most `timeout_s`; whether it is. The wait stays open."""
        return waited_for(self, wait, timeout_s)

    def withdraw(self, wait: Wait) -> None:
        """The waiter goes on at once, as after a timeout. Nothing for a wait that is done."""
        with self.lock:
            self._waits.withdraw(wait)

    def expire_waits(self) -> list[Wait]:
        """Ends the waits whose deadline has passed and returns them, timed out."""
        with self.lock:
            return self._waits.expire()

    def mark(self, thread: Thread) -> Mark:
        """Names the thread's place for a later rewind. Holds nothing."""
        with self.lock:
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
        with self.lock:
            rewind(self._ledger, thread, to, recompute)

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
        with self.lock:
            self._ledger.running(thread, "commit")
            if span is not None and not 0 <= span[0] <= span[1] <= thread.own_tokens:
                raise ValueError(f"span must lie within the {thread.own_tokens} own tokens, got {span}")
            if not self.is_computed(thread.cursor):
                raise NotComputed(f"thread {thread.id} has tokens without KV; compute them before commit")
            return self._endings.commit(thread, span, keep_running)

    def cancel(self, thread: Thread) -> None:
        """Ends the thread and its descendants that have not ended, and wakes who waits for them. Idempotent."""
        with self.lock:
            self._ledger.known(thread)
            self._endings.cancel(thread)

    def fail(self, thread: Thread, reason: str) -> None:
        """Ends the thread as FAILED for `reason`: an engine's word, not the agent's. No change to an ended thread."""
        with self.lock:
            self._ledger.known(thread)
            self._endings.fail(thread, reason)

    def drop(self, thread: Thread) -> None:
        """Gives the handle back: nobody can name the thread any more. Readers and children keep what they see.

        A thread that has not ended is cancelled first (its descendants are not). Raises StaleHandle the second time.
        """
        with self.lock:
            self._ledger.known(thread)
            self._endings.drop(thread)
