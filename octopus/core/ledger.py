"""What exists in a graph: threads, segments, snapshots and the order of events; and the guards every primitive uses."""

from __future__ import annotations

from typing import Any

from octopus.core.cursor import Cursor, new_cursor
from octopus.core.errors import NotRunning, StaleHandle, StaleWeights
from octopus.core.mount import Mount
from octopus.core.namespace import PLAIN, Namespace
from octopus.core.nothing import NOTHING
from octopus.core.retention import Retention
from octopus.core.segment import Segment
from octopus.core.thread import RUNNING, Snapshot, Thread
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
        self.order = order = self.order + 1
        if self.trace is not None:
            self.trace.events.append((order, kind, *fields))
        return order

    # ---- creation ----

    def new_root(self, namespace: Namespace, priority: int, cursor: Cursor | None = None) -> Thread:
        """A root thread, standing at `cursor`, or as the writer on an empty segment of its own."""
        if cursor is None:
            index, writer, order = self._segments_made, self._threads_made, self.order + 1
            segment = Segment(index, None, 0, writer, order, self.weights_version, (), namespace)
            self._segments_made += 1
            self.retention.segments[index] = segment
            cursor = Cursor(segment, 0)
        thread = self._new_thread(self._roots_made, None, cursor, namespace, priority)
        self._roots_made += 1
        return thread

    def new_children(self, parent: Thread, cursor: Cursor, count: int) -> list[Thread]:
        """Forks: threads that begin at `cursor`, where somebody stands. Child indices are never given twice."""
        parent.children = siblings = parent.children or {}
        threads, version, children = self.threads, self.weights_version, []
        shift = parent.children_made - self._threads_made
        ids = range(self._threads_made, self._threads_made + count)
        for id in ids:
            threads[id] = siblings[id] = child = Thread(id, id + shift, parent, cursor, version)
            children.append(child)
        self._threads_made += count
        parent.children_made += count
        cursor.segment.add_reference(cursor.length, count)
        self.order = order = self.order + 1
        if self.trace is not None:
            self.trace.events.append((order, "fork", parent.id, ids, cursor.segment.index, cursor.length))
        return children

    def open_segment(self, thread: Thread, start_position: int, mounts: tuple[Mount, ...] = ()) -> Segment:
        """Opens a segment below the thread's cursor and moves the thread onto it. Returns the segment."""
        parent = thread.cursor
        index, writer = self._segments_made, thread.id
        self.order = order = self.order + 1
        if self.trace is not None:
            above = parent.segment.index
            self.trace.events.append((order, "open", index, writer, above, parent.length, start_position))
        segment = Segment(
            index, parent, start_position, writer, order, self.weights_version, mounts, thread.namespace
        )
        self._segments_made = index + 1
        self.retention.segments[index] = segment
        if thread.at_tip:
            self.retention.leave_to_child(parent)
        segment.tip = thread.at_tip = True  # Else it already counts as one who stands there.
        thread.cursor = new_cursor((segment, 0))
        return segment

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
        thread.snapshots = thread.snapshots or {}
        thread.snapshots[version] = snapshot
        return snapshot

    def release_snapshots(self, thread: Thread) -> None:
        """The thread's snapshots hold nothing any more."""
        snapshots, thread.snapshots = thread.snapshots, NOTHING
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

    def _new_thread(
        self,
        child_index: int,
        parent: Thread | None,
        cursor: Cursor,
        namespace: Namespace = PLAIN,
        priority: int = 0,
    ) -> Thread:
        id = self._threads_made
        thread = Thread(id, child_index, parent, cursor, self.weights_version, namespace, priority)
        self._threads_made += 1
        self.threads[id] = thread
        self.retention.stand(thread, cursor)
        return thread

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
        ours = self.threads.get(thread.id) is thread  # A thread that was dropped is not in the table.
        if ours and thread.status is RUNNING and thread.weights_version == self.weights_version:
            return
        self.known(thread)
        if thread.status is not RUNNING:
            raise NotRunning(f"cannot {verb} thread {thread.id}: it is {thread.status.value}, and must be running")
        self.current_weights(thread)
