"""An agent's line of work, and the places on it that have names."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from typing import TYPE_CHECKING

from octopus.core.cursor import Cursor
from octopus.core.namespace import PLAIN, Namespace
from octopus.core.nothing import NOTHING

if TYPE_CHECKING:
    from octopus.core.waits import Wait


class Status(Enum):
    """Where a thread stands in its life. Those that are `terminal` are sticky."""

    RUNNING = "running"
    WAITING = "waiting"
    COMMITTED = "committed"
    CANCELLED = "cancelled"
    FAILED = "failed"

    def __init__(self, word: str) -> None:
        self.terminal = word not in ("running", "waiting")


RUNNING = Status.RUNNING
"""A plain name: to look up a member of an enumeration takes six times as long."""


@dataclass(frozen=True, kw_only=True, slots=True, eq=False)
class Mark:
    """A cursor of a thread to rewind to. It holds nothing, and is abandoned by a rewind to before it."""

    thread: Thread
    cursor: Cursor


@dataclass(frozen=True, kw_only=True, slots=True, eq=False)
class Snapshot:
    """A cursor that was committed. It holds its tokens until its thread is dropped, cancelled or failed.

    Attributes:
        version: The thread's version there: commits and reads at new places count it up from 1.
        digest: Hash of everything the cursor sees.
        span: The own tokens `[start, stop)` that readers get by default; None for all.
    """

    thread: Thread
    cursor: Cursor
    version: int
    digest: bytes
    span: tuple[int, int] | None


class Thread:
    """A line of work: a current cursor, a status and a parent. All changes go through `Graph`.

    Attributes:
        id: Number in its graph, never reused.
        child_index: Its number among its parent's children (among roots), never given to another.
        depth: Number of forks above it.
        fork_cursor: Where the thread began.
        cursor: Where it stands; back at the fork once dropped, so that it keeps nothing alive.
        version: How often a place of it was published, by a commit or to a reader.
        published: The latest such place; None before the first.
        snapshots: The commits, by version.
        at_tip: Whether it stands, as the writer, at the end of its segment.
        dropped: Whether its handle has been given back.
        namespace: What else but tokens and weights decides its KV; children inherit it.
        priority: Who is preempted last: the higher, the later. Children inherit it.
        preempted: Whether its memory was taken away since it was last computed.
        turns: Its last two turn boundaries, each in the segment that holds the last token before it.

    What few threads ever change is a default of the class: forking makes many.
    """

    at_tip = False
    children: dict[int, Thread] = NOTHING
    children_made = 0
    dropped = False
    preempted = False
    published: Cursor | None = None
    reason: str | None = None
    snapshots: dict[int, Snapshot] = NOTHING
    status: Status = RUNNING
    turns: tuple[Cursor, ...] = ()
    version = 0
    wait: Wait | None = None
    waiters: dict[Wait, None] = NOTHING

    def __init__(
        self,
        id: int,
        child_index: int,
        parent: Thread | None,
        cursor: Cursor,
        weights_version: int,
        namespace: Namespace = PLAIN,
        priority: int = 0,
    ) -> None:
        self.id = id
        self.child_index = child_index
        self.parent = parent
        if parent is None:
            self.depth, self.namespace, self.priority = 0, namespace, priority
        else:
            self.depth, self.namespace, self.priority = parent.depth + 1, parent.namespace, parent.priority
        self.fork_cursor = cursor
        self.cursor = cursor
        self.weights_version = weights_version

    @property
    def path(self) -> tuple[int, ...]:
        """Child indices from the root thread down: a key for random draws that no other has. O(depth)."""
        indices = []
        thread: Thread | None = self
        while thread is not None:
            indices.append(thread.child_index)
            thread = thread.parent
        return tuple(reversed(indices))

    @property
    def own_tokens(self) -> int:
        """Number of tokens on its path since the fork point."""
        return self.cursor.path_length - self.fork_cursor.path_length

    def __repr__(self) -> str:
        return f"Thread({self.id}, {self.status.value}, {self.cursor})"
