"""The memory half of a graph: who is given room, what is found again, what is audited."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from pathlib import Path
from typing import Any

from octopus.core.ancestry import locate
from octopus.core.audit import audit
from octopus.core.cursor import Cursor
from octopus.core.errors import InvariantViolation, NotRunning
from octopus.core.host import HostTier, Transfer
from octopus.core.ledger import Ledger
from octopus.core.namespace import PLAIN, Namespace
from octopus.core.pool import PagePool, StatePool
from octopus.core.prefix import Match
from octopus.core.retention import Retention
from octopus.core.seals import Seals
from octopus.core.segment import Segment
from octopus.core.stats import StoreStats, stats_of
from octopus.core.step import Step
from octopus.core.thread import Status, Thread
from octopus.core.trace import Trace


class Store:
    """Pages, recurrent states and the host tier behind a graph. Any Python thread may call it.

    Attributes:
        retention: Who stands where, and what memory that keeps.
        trace: Gets every event; None keeps none.
        lock: Taken by every public operation; re-entrant.
    """

    def __init__(
        self,
        pages: PagePool | None,
        states: StatePool | None,
        host: HostTier | None,
        seals: Seals | None,
        trace: Trace | None,
    ) -> None:
        if host is not None and pages is None:
            raise ValueError("a host tier takes the pages of a pool; give the graph one")
        self.retention = Retention(pages, states, host)
        self.lock = self.retention.lock
        self.trace = trace
        self._ledger = Ledger(self.retention, trace)
        if seals is not None and pages is not None:
            seals.attach(pages.page_size, self.retention.counters)
            self.retention.swapping.seals = seals

    @property
    def weights_version(self) -> int:
        """Version of the weights that write now."""
        return self._ledger.weights_version

    @property
    def segments(self) -> list[Segment]:
        """All segments that have not been evicted, in creation order."""
        with self.lock:
            return list(self.retention.segments.values())

    @property
    def threads(self) -> list[Thread]:
        """All threads that have not been dropped, in creation order."""
        with self.lock:
            return list(self.retention.threads.values())

    @property
    def transfers(self) -> list[Transfer]:
        """The copies under way."""
        with self.lock:
            return list(self.retention.swapping.moving.values())

    def stats(self) -> StoreStats:
        """Figures of this moment. O(cached segments)."""
        with self.lock:
            return stats_of(self.retention)

    # ---- steps ----

    def begin_step(
        self, threads: Sequence[Thread], *, hidden: Collection[Thread] = (), chunk_tokens: int = 1024
    ) -> Step:
        """Plans what `threads` lack and reserves memory for all of it; waits until no other step is open.

        Args:
            threads: Running threads, which will be computed up to their cursors.
            hidden: Those of them whose last token must pass in any case, since its hidden state is wanted.
            chunk_tokens: Most tokens of one stretch.

        Raises:
            StaleHandle, NotRunning, StaleWeights: a thread cannot go on.
            CapacityExceeded: the memory ladder cannot make room.
            StillLoading: something is on its way from the host tier for longer than the tier's timeout.
            Contamination: computed memory has changed behind our back.
        """
        retention = self.retention
        with self.lock:
            if retention.step is not None and retention.step.mine:
                raise RuntimeError("this Python thread has an open step already; close it first")
            retention.condition.wait_for(lambda: retention.step is None)
            for thread in threads:
                self._ledger.running(thread, "go on with")
            return Step(retention, threads, hidden, chunk_tokens)

    def refuse_unready(self, thread: Thread) -> None:
        """Raises StaleHandle, NotRunning or StaleWeights unless the thread can go on."""
        with self.lock:
            self._ledger.running(thread, "go on with")

    def is_computed(self, cursor: Cursor) -> bool:
        """Whether the KV of every token on the path exists. Always, in a graph that only records."""
        place = locate(cursor, cursor.path_length)
        return self.retention.pages is None or place.length <= place.segment.computed

    # ---- room ----

    def make_room(self, *, pages: int = 0, states: int = 0) -> None:
        """Runs the memory ladder until so many pages and state slots are free. Takes none. Raises CapacityExceeded."""
        with self.lock:
            self.retention.make_room(pages=pages, states=states)

    def evict(self) -> bool:
        """Forgets the least recently left segment on which nobody stands. False if there is none."""
        with self.lock:
            leaf = self.retention.ladder.oldest_leaf()
            if leaf is not None:
                self.retention.evict(leaf)
            return leaf is not None

    def trim(self) -> None:
        """Gives back at once what nobody can reach; else it is given back when its room is needed."""
        with self.lock:
            while self.evict():
                pass

    def set_priority(self, thread: Thread, priority: int) -> None:
        """The higher, the later is `thread` preempted; of equals the youngest goes first. Later children inherit it."""
        with self.lock:
            self._ledger.known(thread)
            thread.priority = priority

    def preempt(self, thread: Thread) -> int:
        """Takes from a thread that has not ended the memory that it alone sees, until its next step.

        To the host tier as far as that has room, else to be computed again. Status and priority stay. Returns how many
        pages became free or are on their way; 0 the second time, and for a thread of the open step.
        """
        with self.lock:
            self._ledger.known(thread)
            if thread.status.terminal:
                raise NotRunning(f"cannot preempt thread {thread.id}: it is {thread.status.value}")
            return self.retention.ladder.preempt(thread)

    def offload(self, thread: Thread) -> int:
        """Begins to move to the host tier what a thread that is not running holds and no running thread sees.

        Returns how many pages are on their way; 0 without a host tier or room there. Raises ValueError if it runs.
        """
        with self.lock:
            self._ledger.known(thread)
            if thread.status is Status.RUNNING:
                raise ValueError(f"thread {thread.id} is running; preempt it instead")
            return self.retention.ladder.offload(thread)

    def wait_transfers(self, timeout_s: float | None = None) -> bool:
        """Waits until no copy is under way; whether none is. Without `timeout_s`, as long as the host tier allows."""
        with self.lock:
            return self.retention.swapping.wait(list(self.retention.swapping.moving.values()), timeout_s)

    def end_turn(self, thread: Thread) -> None:
        """The thread's cursor is a turn boundary: its recurrent state is kept while it is one of the last two."""
        with self.lock:
            self._ledger.running(thread, "end a turn of")
            place = self.retention.checkpoints.end_turn(thread)
            self._ledger.event("turn", thread.id, place.segment.index, place.length)

    # ---- prefixes ----

    def match(self, tokens: Any, *, namespace: Namespace = PLAIN) -> Match:
        """The longest prefix of `tokens` that is computed on some path without mounts, by the present weights.

        Compares every token, over all threads and cached lines of the namespace. In a hybrid model the match ends where
        a recurrent state is kept (`limited` says whether that cost anything). Holds nothing; see `Graph.thread_from`.

        Args:
            tokens: Token ids: a buffer of 32-bit integers, or any sequence of integers.
            namespace: Where to look.
        """
        with self.lock:
            retention = self.retention
            found = retention.prefixes.find(
                tokens, namespace, recurrent=retention.states is not None, claimed=retention.claimed
            )
            retention.counters.match_calls += 1
            retention.counters.match_tokens += found.tokens
            return found

    def advance_weights(self) -> int:
        """The weights have changed: nothing written so far may be read. Returns the new version."""
        with self.lock:
            self._ledger.weights_version += 1
            self.retention.prefixes.clear(self._ledger.weights_version)
            self._ledger.event("weights", self._ledger.weights_version)
            return self._ledger.weights_version

    # ---- audit ----

    def check(self) -> None:
        """Recounts everything that is kept count of. Raises InvariantViolation naming what is broken."""
        with self.lock:
            audit(self.retention)

    def audit(self, dump: Path | None = None) -> None:
        """`check`, whose error carries the trace as JSON lines, which `replay` runs again; also written to `dump`."""
        with self.lock:
            try:
                audit(self.retention)
            except InvariantViolation as violation:
                if self.trace is not None:
                    violation.dump = "".join(f"{line}\n" for line in self.trace.json_lines())
                    if dump is not None:
                        dump.write_text(violation.dump)
                raise
