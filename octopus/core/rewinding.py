"""Where a rewind leads, and the rewind."""

from __future__ import annotations

from operator import index

from octopus.core.ancestry import lift, locate
from octopus.core.cursor import Cursor
from octopus.core.errors import RewindRefused
from octopus.core.ledger import Ledger
from octopus.core.retention import Retention
from octopus.core.thread import Mark, Snapshot, Thread


def rewind(ledger: Ledger, thread: Thread, to: int | Mark | Snapshot, recompute: bool) -> None:
    """See `Graph.rewind`."""
    ledger.running(thread, "rewind")
    target = rewind_target(thread, to)
    if not recompute:
        refuse_lost_state(ledger.retention, target)
    left = thread.cursor
    ledger.retention.move(thread, target)
    fields = (left.segment.index, left.length, target.segment.index, target.length)
    ledger.event("rewind", thread.id, *fields)


def rewind_target(thread: Thread, to: int | Mark | Snapshot) -> Cursor:
    """The cursor that `to` names. Raises RewindRefused if the thread may not go there.

    A mark must lie on the line that led here: one that an earlier rewind has passed holds nothing any more, and whether
    its tokens happen to be held by others must not matter. A snapshot holds its tokens wherever it lies.
    """
    if not isinstance(to, Mark | Snapshot):
        to = index(to)
        if not 0 <= to <= thread.own_tokens:
            raise RewindRefused(
                f"thread {thread.id} has {thread.own_tokens} tokens of its own since its fork point; "
                f"it cannot rewind to {to}. Rewind the parent to go further back"
            )
        return thread.fork_cursor if to == 0 else locate(thread.cursor, thread.fork_cursor.path_length + to)
    if to.thread is not thread:
        raise RewindRefused(f"the place is one of thread {to.thread.id}; thread {thread.id} rewinds to its own only")
    segment, length = to.cursor
    passed = lift(thread.cursor, segment.depth)
    if isinstance(to, Mark) and (passed.segment is not segment or passed.length < length):
        raise RewindRefused(f"{to.cursor} was abandoned: a mark holds nothing; commit(keep_running=True) does")
    return to.cursor


def refuse_lost_state(retention: Retention, target: Cursor) -> None:
    """Raises RewindRefused if the model has recurrent layers and their state at `target` is not kept."""
    if retention.states is None or target.path_length == 0:
        return
    segment, length = locate(target, target.path_length)
    last = min(length, segment.computed)  # What was never computed is not computed again.
    kept = last in segment.states or last in segment.host_states
    if last and (not kept or (segment, last) in retention.claimed):
        raise RewindRefused(
            f"no recurrent state is kept at {target}; allow recompute, or rewind to a fork point or snapshot"
        )
