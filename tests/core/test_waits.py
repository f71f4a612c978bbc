"""Waits: what they leave behind when they are met, cut short or pruned."""

from __future__ import annotations

import pytest
from core.test_memory import PretendedEngine

from octopus.attention.plan import lower
from octopus.core.cursor import Cursor
from octopus.core.errors import InvariantViolation
from octopus.core.graph import Graph
from octopus.core.thread import Status, Thread


def family(graph: Graph, n: int) -> tuple[Thread, list[Thread]]:
    root = graph.thread()
    graph.append(root, [0])
    return root, graph.fork(root, n)


def test_an_edge_names_the_snapshot_that_met_the_wait() -> None:
    """Catches: an edge to where the thread stands when the last of them is met, long after it went back."""
    graph = Graph()
    root, (a, b) = family(graph, 2)
    wait = graph.wait_threads(root, [a, b], until="snapshot")
    graph.append(a, [1, 2, 3])
    snapshot = graph.commit(a, keep_running=True)
    graph.rewind(a, 0)
    graph.append(b, [4])
    graph.commit(b, keep_running=True)
    assert wait.done
    assert [edge.awaited for edge in graph.waits] == [snapshot.cursor, b.cursor]


def test_an_edge_names_the_segment_of_the_last_token() -> None:
    """Catches: an edge that is lost because the awaited thread ended right after a read, on an empty segment."""
    graph = Graph()
    root, (a, b) = family(graph, 2)
    graph.append(a, [1])
    place = a.cursor
    graph.append(b, [2])
    graph.read_thread(a, b)
    graph.commit(a)
    graph.wait_threads(root, [a])
    graph.append(root, [9])
    assert [edge.awaited for edge in graph.waits] == [place]
    assert lower(graph.segments, waits=graph.waits).wait_edges == ((2, 1),)


def test_edges_come_in_the_order_of_the_call() -> None:
    """Catches: an order of who was first, which differs between runs that say the same."""
    graph = Graph()
    root, (a, b) = family(graph, 2)
    graph.append(a, [1])
    graph.append(b, [2])
    graph.wait_threads(root, [a, b, a])
    graph.commit(b)
    graph.commit(a)
    assert [edge.awaited for edge in graph.waits] == [a.cursor, b.cursor]


def test_edges_of_evicted_segments_go() -> None:
    """Catches: a key error in `lower`, and an edge that keeps an evicted segment alive."""
    engine = PretendedEngine(pages=4, states=None)
    graph = engine.graph
    root = graph.thread()
    graph.append(root, [0] * 4)
    (a,) = graph.fork(root)
    graph.append(a, [1] * 4)
    engine.compute(a)
    graph.commit(a)
    graph.wait_threads(root, [a])
    graph.append(root, [2])
    kept = list(graph.waits)
    assert len(kept) == 1
    graph.drop(a)
    while graph.retention.cached:
        graph.retention.evict(next(iter(graph.retention.cached)))
    assert graph.waits == []
    assert lower(graph.segments, waits=kept).wait_edges == ()


def test_a_deadline_leaves_no_edge_even_to_who_was_in_time() -> None:
    """Catches: edges for timed-out waits, which would say that the order was kept when nobody waited it out."""
    now_s = [0.0]
    graph = Graph(clock_s=lambda: now_s[0])
    root, (a, b) = family(graph, 2)
    graph.append(a, [1])
    wait = graph.wait_threads(root, [a, b], timeout_s=1)
    graph.commit(a)
    now_s[0] = 1.0
    graph.expire_waits()
    assert wait.timed_out and wait.statuses == {a.id: Status.COMMITTED, b.id: Status.RUNNING}
    assert graph.waits == []


def test_a_wait_whose_waiter_ends_is_done() -> None:
    """Catches: a caller that polls `done` for ever; a closed wait that is left among the waiters and wakes the dead."""
    graph = Graph()
    _, (a, b) = family(graph, 2)
    wait = graph.wait_threads(a, [b])
    graph.cancel(a)
    assert wait.done and not wait.timed_out and wait.statuses == {b.id: Status.RUNNING}
    assert not b.waiters
    graph.commit(b)
    assert a.status is Status.CANCELLED and graph.waits == []
    graph.check()


def test_a_met_wait_is_left_nowhere() -> None:
    """Catches: a wait that stays among the waiters of those it did not need, and resumes its thread once more."""
    graph = Graph()
    root, (a, b) = family(graph, 2)
    graph.wait_threads(root, [a, b], mode="any")
    graph.commit(a)
    assert not a.waiters and not b.waiters
    graph.check()
    again = graph.wait_threads(root, [b])
    b.waiters[again] = b.waiters.pop(again)
    root.wait = None
    with pytest.raises(InvariantViolation, match="is wrong about whether it waits"):
        graph.check()
    root.status = Status.RUNNING
    with pytest.raises(InvariantViolation, match="which waits for it no more"):
        graph.check()


def test_a_read_makes_a_version_only_where_there_was_none() -> None:
    """Catches: a new version at every read, which would end waits for something newer."""
    graph = Graph()
    root, (a, b, c) = family(graph, 3)
    graph.append(a, [1])
    graph.read_thread(b, a)
    wait = graph.wait_threads(root, [a], until="snapshot")
    graph.read_thread(c, a)
    assert (a.version, wait.done) == (1, False)
    graph.append(a, [2])
    graph.read_thread(c, a)
    assert (a.version, wait.done) == (2, True)
    assert graph.waits[0].awaited == Cursor(a.cursor.segment, 2)
