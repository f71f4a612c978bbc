"""Recurrent states that nobody needs any more: which go, when, and how many."""

from __future__ import annotations

import gc
import threading

import pytest
from small_store import SmallStore

from octopus.core.errors import CapacityExceeded
from octopus.core.segment import Segment


def test_states_beyond_a_rewind_go_with_it() -> None:
    """Catches: a state that stays although the tokens that it stands for are gone."""
    store = SmallStore(16, 2, states=4)
    thread = store.root(1, 2, 3, 4, 5)
    assert store.states is not None and store.states.free == 3
    store.graph.rewind(thread, 2)
    assert not thread.cursor.segment.states and store.states.free == 4
    store.drop_all()


def test_a_state_that_a_read_leaves_behind_is_cache() -> None:
    """Catches: the newest state of a segment that never becomes cache when its writer goes on below it."""
    store = SmallStore(16, 2, states=4)
    root = store.root(1)
    reader, source = store.child(root, 2), store.child(root, 7, 8)
    store.graph.append(reader, [3])
    left = reader.cursor.segment
    store.graph.read_thread(reader, source)
    assert 1 in left.states and reader.cursor.segment is not left
    assert store.graph.stats().states_idle == 1
    store.graph.make_room(states=2)
    assert 1 not in left.states
    store.write(reader, 4)
    store.drop_all()


def test_a_state_that_only_a_mount_needed_is_cache() -> None:
    """Catches: a state made on the way, for a segment that nobody goes on in, that never becomes cache."""
    store = SmallStore(16, 2, states=4)
    root = store.root(1)
    reader, source = store.graph.fork(root, 2)
    store.graph.append(source, [7, 8])
    store.graph.read_thread(reader, source)
    written = source.cursor.segment
    store.graph.cancel(source)
    store.write(reader, 3)
    assert 2 in written.states and store.graph.stats().states_idle == 1
    store.graph.make_room(states=2)
    assert 2 not in written.states
    store.drop_all()


def test_what_a_step_has_released_counts_when_states_must_go() -> None:
    """Catches: all cache given up for one slot while a step holds back what is released."""
    store = SmallStore(32, 2, states=10)
    assert store.states is not None
    thread, *others = (store.root(number) for number in range(4))
    for other in others:
        (fork,) = store.graph.fork(other)
        store.write(other, 9)
        store.graph.drop(fork)
    store.graph.append(thread, [6])
    assert store.graph.stats().states_idle == 3
    store.engine.open([thread])
    for wanted, left in ((store.states.free + 1, 2), (store.states.free + 2, 1)):
        with pytest.raises(CapacityExceeded):
            store.graph.make_room(states=wanted)
        assert store.graph.stats().states_idle == left
    store.engine.advance()
    store.engine.close()
    store.drop_all()


def test_without_states_nothing_has_to_be_computed_again() -> None:
    """Catches: a rewind refused for a state that the model does not have, or at the root, where there is none."""
    for states in (0, 2):
        store = SmallStore(8, 2, states=states)
        thread = store.root(1, 2, 3)
        if not states:
            store.graph.rewind(thread, 2, recompute=False)
        store.graph.rewind(thread, 0, recompute=False)
        assert thread.own_tokens == 0
        store.drop_all()


def test_what_is_gone_is_not_remembered() -> None:
    """Catches: a list of idle states that keeps every segment alive which has ever had one."""
    store = SmallStore(16, 2, states=4)
    for number in range(30):
        thread = store.root(number, 2)
        store.child(thread, 3)
        for each in store.graph.threads:
            store.graph.drop(each)
        store.graph.trim()
    gc.collect()
    alive = sum(type(thing) is Segment for thing in gc.get_objects())
    del store
    gc.collect()
    assert alive - sum(type(thing) is Segment for thing in gc.get_objects()) <= 2 * 4


def test_a_state_that_a_step_starts_from_stays_while_the_step_waits_for_its_pages() -> None:
    """Catches: a state given up for others' sake between a step's plan and the end of its restore."""
    store = SmallStore(16, 2, states=4, host=8, prompt=False)
    graph, tier = store.graph, store.graph.retention.swapping.host
    assert tier is not None and store.states is not None
    writer, other = store.root(1, 2, 3, 4), graph.thread()
    (fork,) = graph.fork(writer)
    store.write(writer, 5, 6, 7, 8)
    graph.drop(fork)
    graph.wait_threads(writer, [other])
    graph.offload(writer)
    store.copier.deliver_all()
    graph.cancel(other)
    graph.rewind(writer, 6)
    graph.append(writer, [9])
    refused: list[CapacityExceeded] = []

    def ask_for_all() -> None:
        try:
            graph.make_room(states=4)
        except CapacityExceeded as error:
            refused.append(error)
        store.copier.deliver_all()

    tier.timeout_s = 2.0
    late = threading.Timer(0.05, ask_for_all)
    late.start()
    store.engine.compute([writer])
    late.join()
    assert refused and store.sees(writer) == [1, 2, 3, 4, 5, 6, 9]
    graph.drop(other)
    store.drop_all()


def test_states_of_cached_lines_go_before_the_lines() -> None:
    """Catches: lines forgotten for the sake of a state that only they stand at, and that nobody goes on from."""
    store = SmallStore(16, 2, states=3)
    root = store.root(1, 2)
    child = store.child(root, 3)
    for thread in (child, root):
        store.graph.drop(thread)
    store.graph.make_room(states=3)
    figures = store.graph.stats().flat()
    assert (figures["evicted_segments"], figures["evicted_states"], figures["states_free"]) == (0, 2, 3)
    assert store.graph.match([1, 2, 3]).equal == 3
    store.expect_empty()


def test_a_line_that_is_forgotten_takes_no_more_along_than_is_needed() -> None:
    """Catches: line after line forgotten, although the first has made a state cache."""
    store = SmallStore(32, 2, states=6)
    root, reader = store.root(1, 2), store.root(9)
    source = store.child(root, 3, 4)
    store.graph.read_thread(reader, source)
    store.write(reader, 8)
    for thread in (source, root, reader):
        store.graph.drop(thread)
    store.graph.make_room(states=6)
    assert store.graph.stats().counters.evicted_segments == 1, "the reader's, which alone kept the source's line alive"
    assert store.graph.match([1, 2, 3, 4]).equal == 4
    store.expect_empty()


def test_a_state_that_was_left_where_a_copy_reads_it_is_cache() -> None:
    """Catches: a state that a step could not advance in place, and that nobody ever gives up."""
    store = SmallStore(16, 2, states=3, host=4, host_states=2, prompt=False)
    thread = store.root(1, 2)
    wait = store.graph.wait_threads(thread, [store.graph.thread()])
    assert store.graph.offload(thread) == 1
    store.graph.withdraw(wait)
    store.write(thread, 3)
    store.copier.deliver_all()
    assert set(thread.cursor.segment.states) == {2, 3} and store.graph.stats().states_idle == 1
    store.graph.make_room(states=2)
    assert set(thread.cursor.segment.states) == {3}
    store.drop_all()
