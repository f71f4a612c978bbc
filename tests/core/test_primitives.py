"""The primitives as docs/model.md tells them, and the message of each refusal."""

from __future__ import annotations

import re

import numpy as np
import pytest

from octopus.core.ancestry import path_tokens
from octopus.core.errors import (
    ForkRefused,
    NotRunning,
    OctopusError,
    PlacementRefused,
    RewindRefused,
    StaleHandle,
    StaleWeights,
    UnreadableSource,
    WaitCycle,
)
from octopus.core.graph import Graph
from octopus.core.limits import Limits
from octopus.core.thread import Status, Thread
from octopus.core.trace import Trace
from octopus.core.visibility import view


def seen(thread: Thread) -> list[tuple[int, int]]:
    """The (position, token) pairs that the thread sees, by position."""
    parts = view(thread.cursor)
    return sorted(
        (segment.start_position + i + shift, segment.tokens[i])
        for segment, start, stop, shift in parts
        for i in range(start, stop)
    )


def family(graph: Graph, prompt: list[int], n: int) -> tuple[Thread, list[Thread]]:
    root = graph.thread()
    graph.append(root, prompt)
    return root, graph.fork(root, n)


def test_the_writer_goes_on_in_its_segment_past_a_fork_and_a_read() -> None:
    """Catches: sealing a segment when its cursor is shared, which would cut one segment into hundreds."""
    graph = Graph()
    root, (reader,) = family(graph, [1], 1)
    for token in range(50):
        graph.append(root, [token])
        graph.fork(root)
        graph.read_thread(reader, root)
    assert sum(bool(segment.tokens) for segment in graph.segments) == 1


def test_a_child_sees_its_parent_up_to_the_fork_only() -> None:
    """Catches: a child that follows its parent's segment beyond the fork point."""
    graph = Graph()
    root, (child,) = family(graph, [1, 2], 1)
    graph.append(root, [3])
    graph.append(child, [4])
    assert path_tokens(child.cursor) == [1, 2, 4]
    assert path_tokens(root.cursor) == [1, 2, 3]
    assert seen(child) == [(0, 1), (1, 2), (2, 4)]


def test_append_closes_the_holes_of_the_source() -> None:
    """Catches: one shift for the whole mount, which would leave the source's own mounts as gaps."""
    graph = Graph()
    _, (a, b, c) = family(graph, [0], 3)
    graph.append(a, [1])
    graph.append(b, [2])
    graph.append(a, [3])
    graph.read_thread(a, b)
    graph.append(a, [4])
    assert graph.read_thread(c, a) == 3
    graph.append(c, [5])
    assert seen(c) == [(0, 0), (1, 1), (2, 3), (3, 4), (4, 5)]


def test_original_leaves_every_token_where_it_was() -> None:
    """Catches: a resume position inside what was mounted."""
    graph = Graph()
    _, (a, b) = family(graph, [0], 2)
    graph.append(a, [1, 2, 3])
    graph.append(b, [4])
    assert graph.read_thread(b, a, placement="original") == 3
    graph.append(b, [5])
    assert seen(b) == [(0, 0), (1, 1), (1, 4), (2, 2), (3, 3), (4, 5)]


def test_nothing_is_seen_twice() -> None:
    """Catches: `last` then all mounting the tail again; reading an ancestor or oneself mounting the own path."""
    graph = Graph()
    root, (a, b) = family(graph, [0], 2)
    graph.append(a, [1, 2, 3])
    assert graph.read_thread(b, a, last=1) == 1
    graph.append(b, [9])
    assert graph.read_thread(b, a) == 2
    assert graph.read_thread(b, a) == 0
    assert graph.read_thread(b, b) == 0
    assert graph.read_thread(b, root) == 0
    graph.append(root, [7])
    assert graph.read_thread(b, root) == 1
    graph.append(b, [8])
    assert seen(b) == [(0, 0), (1, 3), (2, 9), (3, 1), (4, 2), (5, 7), (6, 8)]


def test_reading_nothing_changes_nothing() -> None:
    """Catches: an empty mount that opens a segment or makes a snapshot."""
    graph = Graph()
    root, (a,) = family(graph, [0], 1)
    before = (a.cursor, len(graph.segments), len(root.snapshots))
    assert graph.read_thread(a, root) == 0
    assert graph.read_thread(a, root, last=0) == 0
    assert (a.cursor, len(graph.segments), len(root.snapshots)) == before


def test_a_committed_thread_is_read_at_its_snapshot_and_span() -> None:
    """Catches: `span` counted from the path's start; an explicit `last` that the span overrules."""
    graph = Graph()
    _, (a, b, c) = family(graph, [0, 0], 3)
    graph.append(a, [1, 2, 3, 4])
    snapshot = graph.commit(a, span=(1, 3))
    assert (snapshot.version, snapshot.span) == (1, (1, 3))
    assert graph.read_thread(b, a) == 2
    graph.append(b, [9])
    assert [token for _, token in seen(b)] == [0, 0, 2, 3, 9]
    assert graph.read_thread(c, a, last=3) == 3
    (later,) = graph.fork(snapshot)
    graph.append(later, [5])
    assert path_tokens(later.cursor) == [0, 0, 1, 2, 3, 4, 5]


def test_a_running_source_is_read_at_a_snapshot_of_now() -> None:
    """Catches: a reader that follows the writer beyond what it has read."""
    graph = Graph()
    _, (a, b) = family(graph, [0], 2)
    graph.append(a, [1])
    graph.read_thread(b, a)
    graph.append(a, [2])
    graph.append(b, [3])
    assert [token for _, token in seen(b)] == [0, 1, 3]
    assert (a.version, a.snapshots) == (1, {})


def test_rewind_goes_to_before_the_mount_by_count_and_behind_it_by_mark() -> None:
    """Catches: a count that lands after a mount made there; a mark that loses the mount."""
    graph = Graph()
    _, (a, b) = family(graph, [0], 2)
    graph.append(a, [1])
    graph.append(b, [2])
    graph.read_thread(b, a)
    mark = graph.mark(b)
    graph.append(b, [3])
    graph.rewind(b, mark)
    assert seen(b) == [(0, 0), (1, 2), (2, 1)]
    graph.rewind(b, 1)
    assert seen(b) == [(0, 0), (1, 2)]
    graph.append(b, [4])
    assert seen(b) == [(0, 0), (1, 2), (2, 4)]


def test_a_rewind_takes_nothing_from_a_reader() -> None:
    """Catches: freeing or hiding the abandoned tokens that somebody has mounted."""
    graph = Graph()
    _, (a, b) = family(graph, [0], 2)
    graph.append(a, [1, 2])
    graph.read_thread(b, a)
    graph.rewind(a, 0)
    graph.append(a, [3])
    graph.append(b, [4])
    assert [token for _, token in seen(b)] == [0, 1, 2, 4]
    assert [token for _, token in seen(a)] == [0, 3]


def test_waits_end_when_they_are_met() -> None:
    """Catches: `any` that waits for all; a waiter that wakes too early; a status that is missing."""
    graph = Graph()
    root, (a, b) = family(graph, [0], 2)
    first = graph.wait_threads(root, [a, b], mode="any")
    assert (first.done, root.status) == (False, Status.WAITING)
    graph.cancel(a)
    assert first.statuses == {a.id: Status.CANCELLED, b.id: Status.RUNNING}
    second = graph.wait_threads(root, [a, b])
    assert not second.done
    graph.commit(b, keep_running=True)
    assert not second.done
    graph.commit(b)
    assert second.done and root.status is Status.RUNNING
    assert graph.wait_threads(root, [b]).done
    assert graph.wait_threads(root, []).done


def test_a_wait_for_a_snapshot_takes_a_newer_one_only() -> None:
    """Catches: an old snapshot that satisfies the wait."""
    graph = Graph()
    root, (a,) = family(graph, [0], 1)
    graph.commit(a, keep_running=True)
    wait = graph.wait_threads(root, [a], until="snapshot")
    assert not wait.done
    graph.append(a, [1])
    graph.commit(a, keep_running=True)
    assert wait.statuses == {a.id: Status.RUNNING}


def test_a_deadline_ends_a_wait() -> None:
    """Catches: a deadline counted from the graph's birth."""
    now_s = [100.0]
    graph = Graph(clock_s=lambda: now_s[0])
    root, (a,) = family(graph, [0], 1)
    wait = graph.wait_threads(root, [a], timeout_s=5)
    assert graph.expire_waits() == []
    now_s[0] = 105.0
    assert graph.expire_waits() == [wait]
    assert wait.timed_out and root.status is Status.RUNNING and graph.waits == []


def test_cancel_takes_running_descendants_and_is_idempotent() -> None:
    """Catches: a cancellation that reaches committed descendants, or stops at them."""
    graph = Graph()
    root, (a, b) = family(graph, [0], 2)
    (grandchild,) = graph.fork(a)
    graph.append(a, [1])
    graph.commit(a)
    graph.cancel(root)
    graph.cancel(root)
    assert [t.status for t in (root, a, grandchild, b)] == [
        Status.CANCELLED, Status.COMMITTED, Status.CANCELLED, Status.CANCELLED,
    ]  # fmt: skip
    assert path_tokens(a.snapshots[1].cursor) == [0, 1]
    graph.check()


def test_child_indices_are_never_used_again() -> None:
    """Catches: a path that two threads share, so that both draw the same noise."""
    graph = Graph()
    root, (a,) = family(graph, [0], 1)
    graph.drop(a)
    (b,) = graph.fork(root)
    other = graph.thread()
    graph.drop(other)
    assert (a.path, b.path, other.path, graph.thread().path) == ((0, 0), (0, 1), (1,), (2,))


@pytest.mark.parametrize("placement", ["append", "original"])
def test_threads_that_read_each_other_for_ever_stay_small(placement: str) -> None:
    """Catches: one shift for a whole mount, with which three threads pass position 300,000 in eight rounds."""
    graph = Graph()
    _, threads = family(graph, [0], 3)
    for _ in range(12):
        for thread in threads:
            graph.append(thread, [1])
            for other in threads:
                graph.read_thread(thread, other, placement=placement)  # type: ignore[arg-type]
            graph.append(thread, [2])
    assert max(thread.cursor.next_position for thread in threads) < 200
    if placement == "append":
        for thread in threads:
            assert [position for position, _ in seen(thread)] == list(range(thread.cursor.next_position))


def refuse(error: type[OctopusError], message: str, call: object, *arguments: object, **named: object) -> None:
    with pytest.raises(error, match=re.escape(message)):
        call(*arguments, **named)  # type: ignore[operator]


def test_refusals_say_what_was_wrong_and_change_nothing() -> None:
    """Catches: a message that names the wrong thread, and a refusal after something was done."""
    graph = Graph(limits=Limits(fan_out=3, depth=2))
    root, (a, b) = family(graph, [0], 2)
    graph.append(a, [1])
    mark = graph.mark(a)
    graph.cancel(b)
    before = len(graph.segments)
    refuse(UnreadableSource, "thread 2 was cancelled; nothing of it can be read", graph.read_thread, a, b)
    refuse(NotRunning, "cannot append to thread 2: it is cancelled, and must be running", graph.append, b, [1])
    message = "placement is one of append, original, got 'near'"
    refuse(PlacementRefused, message, graph.read_thread, a, root, placement="near")
    message = "thread 1 has 1 tokens of its own since its fork point; it cannot rewind to 2"
    refuse(RewindRefused, message, graph.rewind, a, 2)
    refuse(RewindRefused, "it cannot rewind to -1", graph.rewind, a, -1)
    refuse(RewindRefused, "the place is one of thread 1; thread 0 rewinds to its own only", graph.rewind, root, mark)
    refuse(ForkRefused, "fork takes 1 to 3 children, got 4", graph.fork, root, 4)
    refuse(ForkRefused, "fork takes 1 to 3 children, got 0", graph.fork, root, 0)
    (grandchild,) = graph.fork(a)
    refuse(ForkRefused, "thread 3 is 2 forks deep, which is the limit", graph.fork, grandchild)
    refuse(StaleHandle, "thread 0 belongs to another graph", graph.append, Graph().thread(), [1])
    graph.fail(grandchild, "the tool broke")
    refuse(UnreadableSource, "thread 3 was failed (the tool broke)", graph.read_thread, a, grandchild)
    graph.drop(b)
    refuse(StaleHandle, "thread 2 was dropped; a dropped handle names nothing", graph.drop, b)
    refuse(StaleHandle, "thread 2 was dropped", graph.read_thread, a, b)
    with pytest.raises(ValueError, match="span must lie within the 1 own tokens, got"):
        graph.commit(a, span=(0, 2))
    with pytest.raises(ValueError, match="last is a number of tokens, 0 or more, got -1"):
        graph.read_thread(a, root, last=-1)
    with pytest.raises(ValueError, match="waiting for any of no threads would never end"):
        graph.wait_threads(a, [], mode="any")
    assert len(graph.segments) == before
    graph.check()


def test_an_abandoned_mark_is_refused() -> None:
    """Catches: rewinding onto tokens whose pages have gone, and an answer that depends on who else holds them."""
    graph = Graph()
    _, (a,) = family(graph, [0], 1)
    graph.append(a, [1, 2])
    mark = graph.mark(a)
    graph.fork(a)
    graph.rewind(a, 1)
    refuse(RewindRefused, "was abandoned: a mark holds nothing; commit(keep_running=True) does", graph.rewind, a, mark)


def test_a_wait_that_closes_a_cycle_is_refused() -> None:
    """Catches: a search among ancestors only, which misses siblings and longer rings."""
    graph = Graph()
    _, (a, b, c) = family(graph, [0], 3)
    graph.wait_threads(a, [b])
    refuse(WaitCycle, "thread 2 cannot wait for thread 1: 1 waits for 2 already", graph.wait_threads, b, [a])
    graph.wait_threads(b, [c])
    refuse(WaitCycle, "1 waits for 2 waits for 3 already", graph.wait_threads, c, [a])
    refuse(WaitCycle, "thread 3 cannot wait for itself", graph.wait_threads, c, [c])
    assert c.status is Status.RUNNING


def test_nothing_written_by_older_weights_is_read() -> None:
    """Catches: a lookup, fork or read that mixes KV of two weight versions."""
    graph = Graph()
    root, (a, b) = family(graph, [0], 2)
    graph.append(a, [1])
    snapshot = graph.commit(a)
    graph.advance_weights()
    fresh = graph.thread()
    message = "thread 0 was written with weights version 0, now they are at 1; begin a new thread"
    refuse(StaleWeights, message, graph.append, root, [1])
    refuse(StaleWeights, "thread 1 was written with weights version 0", graph.fork, snapshot)
    refuse(StaleWeights, "thread 1 was written with weights version 0", graph.read_thread, fresh, a)
    graph.append(fresh, [1])
    for thread in (a, b, root):
        graph.drop(thread)
    graph.check()


def test_numbers_may_come_from_arrays() -> None:
    """Catches: a token or count of another integer type that breaks a call, or the trace when it is encoded."""
    trace = Trace()
    graph = Graph(trace=trace)
    thread = graph.thread()
    graph.append(thread, np.array([1, 2, 3]))  # type: ignore[arg-type]
    graph.rewind(thread, np.int64(2))  # type: ignore[arg-type]
    assert path_tokens(thread.cursor) == [1, 2]
    assert len(list(trace.json_lines())) == 4
    with pytest.raises(TypeError, match="cannot be interpreted as an integer"):
        graph.append(thread, [1.5])  # type: ignore[list-item]
    with pytest.raises(TypeError, match="cannot be interpreted as an integer"):
        graph.rewind(thread, None)  # type: ignore[arg-type]


def test_a_snapshot_leads_back_to_its_marks() -> None:
    """Catches: a mark that stays abandoned though the thread is back on its line, held by a snapshot."""
    graph = Graph()
    thread = graph.thread()
    graph.append(thread, [1, 2, 3])
    mark = graph.mark(thread)
    graph.append(thread, [4])
    snapshot = graph.commit(thread, keep_running=True)
    graph.rewind(thread, 1)
    refuse(RewindRefused, "was abandoned", graph.rewind, thread, mark)
    graph.rewind(thread, snapshot)
    graph.rewind(thread, mark)
    assert path_tokens(thread.cursor) == [1, 2, 3]


@pytest.mark.parametrize("hand_out", ["fork", "mark", "commit"])
def test_what_was_handed_out_right_after_a_read_stays_as_it_was(hand_out: str) -> None:
    """Catches: a second read that adds to the empty segment on which a child, mark or snapshot stands."""
    graph = Graph()
    _, (reader, a, b) = family(graph, [0], 3)
    graph.append(a, [1])
    graph.append(b, [2])
    graph.read_thread(reader, a)
    if hand_out == "commit":
        place = graph.commit(reader, keep_running=True).cursor
    else:
        place = graph.mark(reader).cursor if hand_out == "mark" else graph.fork(reader)[0].cursor
    before = view(place), place.next_position
    graph.read_thread(reader, b)
    assert (view(place), place.next_position) == before
