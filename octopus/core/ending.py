"""How threads end: committed, cancelled, failed, dropped."""

from __future__ import annotations

from octopus.core.digest import Digests
from octopus.core.ledger import Ledger
from octopus.core.thread import Snapshot, Status, Thread
from octopus.core.waits import WaitTable


class Endings:
    """Ends threads: they leave where they stand, wait for nobody any more, and wake who waits for them."""

    def __init__(self, ledger: Ledger, waits: WaitTable) -> None:
        self._ledger = ledger
        self._waits = waits
        self._digests = Digests()

    def commit(self, thread: Thread, span: tuple[int, int] | None, keep_running: bool) -> Snapshot:
        """See `Graph.commit`, which has checked that it may be."""
        snapshot = self._ledger.new_snapshot(thread, digest=self._digests.of(thread.cursor), span=span)
        if not keep_running:
            self._end(thread, Status.COMMITTED)
        fields = (snapshot.version, snapshot.digest, span, keep_running)
        self._ledger.event("commit", thread.id, thread.cursor.segment.index, thread.cursor.length, *fields)
        self._waits.wake(thread)
        return snapshot

    def cancel(self, thread: Thread) -> None:
        """See `Graph.cancel`."""
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
        """See `Graph.fail`."""
        if thread.status.terminal:
            return
        thread.reason = reason
        self._give_up(thread, Status.FAILED)
        self._ledger.event("fail", thread.id, reason)
        self._waits.wake(thread)

    def drop(self, thread: Thread) -> None:
        """See `Graph.drop`."""
        if not thread.status.terminal:
            self._end(thread, Status.CANCELLED)
        self._ledger.release_snapshots(thread)
        self._ledger.event("drop", thread.id)
        self._waits.wake(thread)
        self._ledger.forget(thread)

    def _end(self, thread: Thread, status: Status) -> None:
        if thread.wait is not None:
            self._waits.close(thread.wait)
        thread.status = status
        self._ledger.retention.checkpoints.forget_turns(thread)
        self._ledger.retention.leave(thread)

    def _give_up(self, thread: Thread, status: Status) -> None:
        self._end(thread, status)
        self._ledger.release_snapshots(thread)
