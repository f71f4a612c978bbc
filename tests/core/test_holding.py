"""What holds memory and what does not: reads, snapshots, dropped threads, abandoned reservations."""

from __future__ import annotations

import gc
import time
import weakref

import pytest
from core.test_memory import PretendedEngine

from octopus.core.errors import CapacityExceeded, InvariantViolation, StaleHandle
from octopus.core.graph import Graph
from octopus.core.thread import Status


def evict_all(graph: Graph) -> None:
    while graph.retention.cached:
        graph.retention.evict(next(iter(graph.retention.cached)))


def test_to_be_read_pins_nothing() -> None:
    """Catches: a snapshot for every read, which keeps abandoned pages and one state for each time it was looked at."""
    engine = PretendedEngine(pages=200, states=8)
    graph = engine.graph
    root = graph.thread()
    graph.append(root, [0])
    (polled,) = graph.fork(root)
    engine.compute(root)
    for _ in range(30):
        graph.append(polled, [1] * 5)
        (reader,) = graph.fork(root)
        graph.read_thread(reader, polled)
        engine.compute(polled)
        graph.drop(reader)
    assert polled.version == 30 and not polled.snapshots
    graph.rewind(polled, 0)
    evict_all(graph)
    assert engine.pool.used == 1
    graph.check()


def test_what_a_mount_shows_needs_no_state() -> None:
    """Catches: a state that stays for a mount, at a place that nobody can ever go on from."""
    engine = PretendedEngine(pages=200, states=40)
    graph = engine.graph
    root = graph.thread()
    graph.append(root, [0] * 4)
    branches = graph.fork(root, 12)
    for branch in branches:
        graph.append(branch, [1] * 5)
    engine.compute(*branches)
    for branch in branches:
        graph.commit(branch)
        graph.read_thread(root, branch)
        graph.drop(branch)
    graph.append(root, [2])
    engine.compute(root)
    graph.retention.make_room(pages=0, states=38)
    engine.check_views()
    graph.append(root, [2] * 3)
    engine.compute(root)


def test_forking_a_snapshot_costs_the_same_however_many_there_are() -> None:
    """Catches: a search through a list of snapshots."""

    def fork_us(count: int) -> float:
        graph = Graph()
        thread = graph.thread()
        for _ in range(count):
            graph.append(thread, [1])
            snapshot = graph.commit(thread, keep_running=True)
        times = []
        for _ in range(200):
            start = time.perf_counter_ns()
            graph.fork(snapshot)
            times.append(time.perf_counter_ns() - start)
        return sorted(times)[50] / 1000

    assert min(fork_us(10_000) / fork_us(10) for _ in range(3)) < 3


def test_a_snapshot_goes_with_its_thread() -> None:
    """Catches: a snapshot that is forked after its tokens have gone, and a message that names the wrong cause."""
    graph = Graph()
    thread = graph.thread()
    graph.append(thread, [1])
    snapshot = graph.commit(thread, keep_running=True)
    graph.fail(thread, "the tool broke")
    with pytest.raises(StaleHandle, match="the snapshot of thread 0 went when the thread was failed"):
        graph.fork(snapshot)


def test_a_dropped_line_leaves_nothing_behind() -> None:
    """Catches: dropped threads among a parent's children for ever, and their cursors that keep tokens alive."""
    graph = Graph()
    root = graph.thread()
    graph.append(root, [0])
    (living,) = graph.fork(root)
    segments = []
    for child_first in (False, True):
        (child,) = graph.fork(root)
        graph.append(child, [1])
        (grandchild,) = graph.fork(child)
        segments.append(weakref.ref(child.cursor.segment))
        for thread in (grandchild, child) if child_first else (child, grandchild):
            graph.drop(thread)
    assert list(root.children.values()) == [living]
    graph.append(living, [2])
    (heir,) = graph.fork(living)
    segments.append(weakref.ref(living.cursor.segment))
    graph.rewind(living, 0)
    graph.append(living, [3])
    segments.append(weakref.ref(living.cursor.segment))
    graph.drop(living)
    assert list(root.children.values()) == [living], "the way to the heir"
    del child, grandchild, thread
    evict_all(graph)
    gc.collect()
    assert [reference() is None for reference in segments] == [True, True, False, True]
    assert heir.path == (0, 0, 0)
    graph.check()


def test_a_cancellation_reaches_the_descendants_of_dropped_threads() -> None:
    """Catches: a drop that cuts the children off from who may cancel them."""
    graph = Graph()
    root = graph.thread()
    (child,) = graph.fork(root)
    (grandchild,) = graph.fork(child)
    graph.drop(child)
    graph.cancel(root)
    assert grandchild.status is Status.CANCELLED


def test_states_that_an_eviction_sets_free_are_found() -> None:
    """Catches: a refusal, though the very same call works a moment later."""
    engine = PretendedEngine(pages=50, states=4)
    graph = engine.graph
    root = graph.thread()
    for _ in range(4):
        graph.append(root, [0])
        engine.compute(root)
        (child,) = graph.fork(root)
        graph.append(child, [1])
        graph.drop(child)  # Cached, never computed; it stands on its parent's state until it is evicted.
    graph.fork(root)  # So that the step needs a slot of its own.
    graph.append(root, [0])
    engine.compute(root)
    graph.check()


def test_a_state_that_an_eviction_sets_free_is_advanced_in_place() -> None:
    """Catches: a slot that is asked for because somebody stood there who has gone."""
    engine = PretendedEngine(pages=50, states=1)
    graph = engine.graph
    root = graph.thread()
    graph.append(root, [0])
    engine.compute(root)
    (child,) = graph.fork(root)
    graph.append(child, [1])
    graph.drop(child)
    graph.append(root, [0])
    engine.compute(root)
    graph.check()


def test_the_state_that_a_writer_goes_on_from_goes_by_preemption_only() -> None:
    """Catches: a running thread's last state taken for cache; a preempted thread that cannot go on."""
    engine = PretendedEngine(pages=50, states=1)
    graph = engine.graph
    one, two = graph.thread(priority=1), graph.thread()
    for thread in (one, two):
        graph.append(thread, [0] * 3)
    engine.compute(one)
    graph.append(one, [0])
    engine.compute(two)
    assert one.preempted and graph.stats().counters.preempted_recomputed == 1
    assert graph.stats().counters.evicted_states == 0
    engine.compute(one)
    assert (one.preempted, two.preempted) == (False, True)
    engine.check_views()
    graph.check()


def test_a_pass_leaves_a_state_wherever_somebody_may_go_on() -> None:
    """Catches: a pass over a fork point that keeps no state there, or one that keeps some for a mount."""
    engine = PretendedEngine(pages=50, states=20, chunk_tokens=100)
    graph = engine.graph
    reader, root = graph.thread(), graph.thread()
    graph.append(root, [0] * 3)
    graph.fork(root)
    graph.append(root, [0] * 3)
    graph.read_thread(reader, root)
    graph.append(root, [0] * 3)
    engine.compute(root)
    assert root.cursor.segment.states.keys() == {3, 9}


def test_two_stretches_may_start_from_one_state() -> None:
    """Catches: a state advanced in place by one of two stretches that start from it."""
    for chunk_tokens in (4, 6, 100):
        engine = PretendedEngine(pages=50, states=20, chunk_tokens=chunk_tokens)
        graph = engine.graph
        root = graph.thread()
        graph.append(root, [0] * 3)
        engine.compute(root)
        (passing,) = graph.fork(root)
        graph.append(root, [0] * 9)
        engine.compute(root)
        graph.drop(passing)
        assert 3 in root.cursor.segment.states
        graph.rewind(root, 9)
        (child,) = graph.fork(root)
        graph.rewind(root, 6)
        engine.compute(child, root)
        graph.check()


def test_an_abandoned_reservation_forgets_no_state_that_it_did_not_touch() -> None:
    """Catches: a failure in the first wave that costs the states of all threads of the batch."""
    engine = PretendedEngine(pages=50, states=20)
    graph = engine.graph
    threads = [graph.thread() for _ in range(3)]
    for thread in threads:
        graph.append(thread, [0] * 3)
    engine.compute(*threads)
    for thread in threads:
        graph.append(thread, [0])
    with graph.begin_step(threads) as step:
        step.state_move(step.waves[0][0])
    assert [dict.keys(thread.cursor.segment.states) for thread in threads] == [set(), {3}, {3}]
    engine.compute(*threads)
    graph.check()


def test_a_refusal_names_who_stands_there_each_once() -> None:
    """Catches: a dropped thread named as the holder, a thread named once for each of its segments."""
    engine = PretendedEngine(pages=7, states=6)
    graph = engine.graph
    first = graph.thread()
    graph.append(first, [0] * 12)
    engine.compute(first)
    (heir,) = graph.fork(first)
    graph.append(heir, [0] * 4)
    engine.compute(heir)
    graph.drop(first)
    (other,) = graph.fork(heir)
    small = graph.thread()
    graph.append(small, [0] * 4)
    engine.compute(small)
    for thread in (heir, other, small):
        graph.commit(thread)
    late = graph.thread()
    graph.append(late, [0] * 12)
    message = (
        r"^need 3 pages of 4 tokens, 2 of 7 are free; largest holders: thread 1 \(4\), thread 3 \(1\); "
        "drop threads, or build the engine with more pages$"
    )
    with pytest.raises(CapacityExceeded, match=message):
        engine.compute(late)


def test_the_audit_sees_what_mounts_and_weights_say() -> None:
    """Catches: an audit of counts that trusts the mounts, and KV of two weights in one view."""
    graph = Graph()
    root = graph.thread()
    graph.append(root, [0])
    source, reader = graph.fork(root, 2)
    graph.append(source, [1, 2])
    graph.read_thread(reader, source)
    graph.check()
    segment = source.cursor.segment
    segment.mount_starts.add(-1)
    with pytest.raises(InvariantViolation, match=r"counts starts of mounts \[-1, 0\], found \[0\]"):
        graph.check()
    segment.mount_starts.remove(-1)
    segment.mount_ends.remove(2)
    with pytest.raises(InvariantViolation, match=r"counts ends of mounts \[\], found \[2\]"):
        graph.check()
    segment.mount_ends.add(2)
    segment.weights_version = 1
    with pytest.raises(InvariantViolation, match=r"of weights 1 sees .* of 0"):
        graph.check()
