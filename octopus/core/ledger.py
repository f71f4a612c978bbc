"""What exists in a graph: threads, segments, snapshots and the order of events; and the guards every primitive uses."""

from __future__ import annotations

from typing import Any

from octopus.core.cursor import Cursor
from octopus.core.errors import NotRunning, StaleHandle, StaleWeights
from octopus.core.mount import Mount
from octopus.core.retention import Retention
from octopus.core.segment import Segment
from octopus.core.thread import Snapshot, Status, Thread
from octopus.core.trace import Trace


class Ledger:
    """The tables behind `Graph`. Creates threads, segments and snapshots, numbers events, refuses bad handles.

    Attributes:
        retention: Who stands where.
        trace: Gets every event; None keeps none.
        order: Number of the latest event.
        threads: Threads that have not been dropped, by id, in creation order; the same table as in `retention`.
        weights_version: Version of the weights that write now.
    """

    def __init__(self, retention: Retention, trace: Trace | None) -> None:
        self.retention = retention
        self.trace = trace
        self.order = 0
        self.threads = retention.threads
        self.weights_version = 0
        self._threads_made = 0
        self._roots_made = 0
        self._segments_made = 0

    def event(self, kind: str, *fields: Any) -> int:
        """Numbers an event and records it; `fields` are those of `trace.FIELDS[kind]`."""
        self.order += 1
        if self.trace is not None:
            self.trace.events.append((self.order, kind, *fields))
        return self.order

    # ---- creation ----

    def new_root(self) -> Thread:
        """A root thread, standing as the writer on an empty segment of its own."""
        segment = self._new_segment(None, 0, self._threads_made, ())
        self._roots_made += 1
        return self._new_thread(self._roots_made - 1, None, Cursor(segment, 0))

    def new_child(self, parent: Thread, cursor: Cursor) -> Thread:
        """A thread that begins at `cursor`. Its child index is never given to another."""
        child = self._new_thread(parent.children_made, parent, cursor)
        parent.children_made += 1
        parent.children[child.id] = child
        return child

    def open_segment(self, thread: Thread, start_position: int, mounts: tuple[Mount, ...] = ()) -> None:
        """Opens a segment below the thread's cursor and moves the thread onto it."""
        parent = thread.cursor
        segment = self._new_segment(parent, start_position, thread.id, mounts)
        self.event("open", segment.index, thread.id, parent.segment.index, parent.length, start_position)
        self.retention.hold(parent)
        self.retention.leave(thread)
        self.retention.stand(thread, Cursor(segment, 0))

    def publish(self, thread: Thread) -> int:
        """The place where the thread stands gets the next version. Holds nothing."""
        thread.version += 1
        thread.published = thread.cursor
        return thread.version

    def new_snapshot(self, thread: Thread, *, digest: bytes, span: tuple[int, int] | None) -> Snapshot:
        """A snapshot of where the thread stands; holds its tokens."""
        version = self.publish(thread)
        snapshot = Snapshot(thread=thread, cursor=thread.cursor, version=version, digest=digest, span=span)
        thread.cursor.segment.handed_out = True
        self.retention.hold(thread.cursor)
        thread.snapshots[version] = snapshot
        return snapshot

    def release_snapshots(self, thread: Thread) -> None:
        """The thread's snapshots hold nothing any more."""
        snapshots, thread.snapshots = thread.snapshots, {}
        for snapshot in snapshots.values():
            self.retention.let_go(snapshot.cursor)

    def forget(self, thread: Thread) -> None:
        """The handle is gone. A parent keeps it only for the descendants through it that are not dropped yet."""
        thread.dropped = True
        del self.threads[thread.id]
        thread.cursor, thread.published = thread.fork_cursor, None
        while thread.dropped and not thread.children and thread.parent is not None:
            thread.parent.children.pop(thread.id, None)
            thread = thread.parent

    def _new_thread(self, child_index: int, parent: Thread | None, cursor: Cursor) -> Thread:
        id, version = self._threads_made, self.weights_version
        thread = Thread(id=id, child_index=child_index, parent=parent, cursor=cursor, weights_version=version)
        self._threads_made += 1
        self.threads[id] = thread
        self.retention.stand(thread, cursor)
        return thread

    def _new_segment(
        self, parent: Cursor | None, start_position: int, writer: int, mounts: tuple[Mount, ...]
    ) -> Segment:
        segment = Segment(
            index=self._segments_made,
            parent=parent,
            start_position=start_position,
            writer=writer,
            opened_at=self.order + 1,
            weights_version=self.weights_version,
            mounts=mounts,
        )
        self._segments_made += 1
        self.retention.segments[segment.index] = segment
        return segment

    # ---- guards ----

    def known(self, thread: Thread) -> None:
        """Raises StaleHandle unless the thread is one of ours and not dropped."""
        if thread.dropped:
            raise StaleHandle(f"thread {thread.id} was dropped; a dropped handle names nothing")
        if self.threads.get(thread.id) is not thread:
            raise StaleHandle(f"thread {thread.id} belongs to another graph")

    def known_snapshot(self, snapshot: Snapshot) -> None:
        """Raises StaleHandle unless the snapshot still holds its tokens, StaleWeights unless they can be read."""
        self.known(snapshot.thread)
        thread = snapshot.thread
        if thread.snapshots.get(snapshot.version) is not snapshot:
            raise StaleHandle(f"the snapshot of thread {thread.id} went when the thread was {thread.status.value}")
        self.current_weights(snapshot.thread)

    def current_weights(self, thread: Thread) -> None:
        """Raises StaleWeights if the thread was written by older weights."""
        if thread.weights_version != self.weights_version:
            raise StaleWeights(
                f"thread {thread.id} was written with weights version {thread.weights_version}, now they are at "
                f"{self.weights_version}; begin a new thread"
            )

    def running(self, thread: Thread, verb: str) -> None:
        """Raises StaleHandle, NotRunning or StaleWeights unless the thread can go on."""
        self.known(thread)
        if thread.status is not Status.RUNNING:
            raise NotRunning(f"cannot {verb} thread {thread.id}: it is {thread.status.value}, and must be running")
        self.current_weights(thread)
