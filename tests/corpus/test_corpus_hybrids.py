"""Recurrent states that are restored at the wrong token, kept by the wrong rule, or not moved with the KV."""

from __future__ import annotations

import pytest
from small_store import SmallStore

from octopus.core.errors import CapacityExceeded, RewindRefused
from octopus.core.segment import Segment


def states_of(store: SmallStore) -> dict[tuple[int, int], int]:
    """What each kept state was written with, by segment and length."""
    assert store.states is not None
    return {
        (segment.index, length): store.device.states[store.states.unit(handle)]
        for segment in store.graph.segments
        for length, handle in segment.states.items()
    }


def expect_states_where_they_belong(store: SmallStore) -> None:
    """A state after `n` tokens of a segment was written by its token `n - 1`."""

    def uid(segment: Segment, length: int) -> int:
        return store.engine.uids(segment, length - 1, length)[0]

    by_index = {segment.index: segment for segment in store.graph.segments}
    for (index, length), written in states_of(store).items():
        assert written == uid(by_index[index], length), (index, length)


def test_a_match_ends_where_a_state_is_kept() -> None:
    """Catches: a later state than the boundary restored, or KV without its state (vllm 43559, 46453; LMCache 4247)."""
    store = SmallStore(16, 2, states=8)
    thread = store.root(1, 2)
    kept = store.graph.fork(thread)
    store.write(thread, 3, 4)
    match = store.graph.match([1, 2, 3])
    assert (match.tokens, match.equal, match.limited) == (2, 3, True)
    again, _ = store.graph.thread_from([1, 2, 3, 9])
    store.engine.compute([again])
    assert store.sees(again) == [1, 2, 3, 9]
    expect_states_where_they_belong(store)
    assert kept


def test_states_are_found_by_token_and_not_by_page() -> None:
    """Catches: a state's index computed with another group's block size (vllm 55600, 53142)."""
    store = SmallStore(32, 2, states=8)
    thread = store.root(*range(8))
    places = [thread.cursor]
    store.graph.commit(thread, keep_running=True)
    store.write(thread, *range(8, 16))
    store.graph.commit(thread, keep_running=True)
    places.append(thread.cursor)
    expect_states_where_they_belong(store)
    assert store.graph.match(list(range(20))).tokens == 16
    assert store.graph.match(list(range(15))).tokens == 8
    assert [place.length for place in places] == [8, 16]


def test_a_state_slot_starts_from_nothing_of_its_last_owner() -> None:
    """Catches: slots that are not cleared on reuse (vllm PR 56524). A root's first stretch reads no state at all."""
    store = SmallStore(16, 2, states=1)
    first = store.root(7, 7)
    store.graph.drop(first)
    second = store.graph.thread()
    store.graph.append(second, [1])
    store.engine.open([second])
    assert store.engine.step is not None
    ((stretch,),) = store.engine.step.waves
    assert store.engine.step.state_move(stretch).read == -1
    store.engine.advance()
    store.engine.close()
    expect_states_where_they_belong(store)


def test_a_rewind_moves_the_state_with_the_kv() -> None:
    """Catches: a crop that cuts the convolution and leaves the recurrent state (transformers 49036)."""
    store = SmallStore(16, 2, states=6)
    thread = store.root(*range(11))
    store.graph.rewind(thread, 8)
    assert store.sees(store.write(thread, 50)) == [*range(8), 50]
    expect_states_where_they_belong(store)
    store.drop_all()


def test_a_rewind_without_a_checkpoint_is_refused_and_changes_nothing() -> None:
    """Catches: a refusal that is ignored, or that wipes everything (llama.cpp 22534, 28007, 18391; mlx-lm 1494)."""
    store = SmallStore(16, 2, states=6)
    thread = store.root(1, 2, 3, 4)
    before = store.sees(thread), states_of(store), store.graph.stats().pages
    with pytest.raises(RewindRefused):
        store.graph.rewind(thread, 2, recompute=False)
    with pytest.raises(RewindRefused):
        store.graph.rewind(thread, 5)
    assert before == (store.sees(thread), states_of(store), store.graph.stats().pages)


def test_a_second_rewind_before_the_first_is_used() -> None:
    """Catches: a shifted snapshot after two rollbacks in a row (llama.cpp 22746, beellama.cpp 165)."""
    store = SmallStore(16, 2, states=6)
    thread = store.root(1, 2, 3, 4, 5)
    store.graph.rewind(thread, 4)
    store.graph.rewind(thread, 2)
    assert store.sees(store.write(thread, 9)) == [1, 2, 9]
    store.graph.rewind(thread, 1)
    assert store.sees(store.write(thread, 8, 7)) == [1, 8, 7]
    expect_states_where_they_belong(store)
    store.drop_all()


def test_a_state_that_was_evicted_and_made_again_is_counted_once() -> None:
    """Catches: a lock on what is not there, counted when it goes but not when it comes (sglang PR 27147)."""
    store = SmallStore(16, 2, states=3)
    root = store.root(1, 2)
    child = store.child(root, 3)
    store.graph.drop(child)
    store.root(9)
    again = store.child(root, 3)
    figures = store.graph.stats().states
    assert figures.free + figures.fenced + figures.used == 3
    assert store.sees(again) == [1, 2, 3]
    store.drop_all()


def test_of_two_equal_places_the_older_is_found() -> None:
    """Catches: a match that depends on chance where several threads have computed the same."""
    store = SmallStore(16, 2, states=4)
    one, other = store.root(1, 2), store.root(1, 2)
    found = store.graph.match([1, 2, 3]).cursor
    assert found is not None and found.segment is one.cursor.segment is not other.cursor.segment


def test_states_of_what_is_gone_go_first() -> None:
    """Catches: the fork point of a living thread whose state goes, while one with dead children is kept."""
    store = SmallStore(32, 2, states=4)
    root = store.root(1)
    living = store.child(root, 2)
    gone = store.root(5)
    gone_too = store.child(gone, 6)
    for thread in (gone_too, gone):
        store.graph.drop(thread)
    store.graph.make_room(states=2)
    assert 1 in root.cursor.segment.states and 1 in living.cursor.segment.states
    expect_states_where_they_belong(store)


def test_room_for_states_takes_no_page() -> None:
    """Catches: a request for states that is refused for want of a page nobody asked for."""
    store = SmallStore(1, 2, states=2)
    thread = store.root(1, 2)
    store.graph.make_room()
    store.graph.make_room(states=1)
    assert store.sees(thread) == [1, 2]


def test_a_state_that_a_step_starts_from_stays() -> None:
    """Catches: a state dropped, for others' sake, between a step's begin and the pass that reads it."""
    store = SmallStore(16, 2, states=3)
    thread, other = store.root(1, 2), store.root(8)
    store.graph.append(thread, [3])
    store.engine.open([thread])
    store.graph.cancel(thread)
    store.graph.drop(thread)
    with pytest.raises(CapacityExceeded):
        store.graph.make_room(states=3)
    while store.engine.advance():
        pass
    store.engine.close()
    assert store.sees(other) == [8]
    store.drop_all()


@pytest.mark.parametrize("lost", range(1, 8))
def test_lost_states_are_made_again_from_the_root_on(lost: int) -> None:
    """Catches: a pass after a state that does not ask for the state it starts from, however far up that was lost."""
    store = SmallStore(32, 2, states=12)
    root = store.root(1, 2)
    child = store.child(root, 3, 4, 5)
    grandchild = store.child(child, 6, 7)
    for number, thread in enumerate((root, child, grandchild)):
        segment = thread.cursor.segment
        for length in list(segment.states) if lost & 1 << number else []:
            store.graph.retention.swapping.drop_state(segment, length)
    for thread in (child, grandchild):
        store.graph.rewind(thread, 1)
        store.write(thread, 9)
    assert (store.sees(child), store.sees(grandchild)) == ([1, 2, 3, 9], [1, 2, 3, 4, 5, 6, 9])
    expect_states_where_they_belong(store)
    store.drop_all()


def test_a_state_made_again_while_its_first_slot_is_under_copy_has_an_owner() -> None:
    """Catches: a second state at the same place taken for the one that the copy has adopted, and lost."""
    store = SmallStore(16, 2, states=6, host=8, host_states=2, prompt=False)
    graph = store.graph
    writer, other = store.root(1, 2), graph.thread()
    (fork,) = graph.fork(writer)
    store.write(writer, 3)
    graph.drop(fork)
    (child,) = graph.fork(writer)
    for thread in (writer, child):
        graph.wait_threads(thread, [other])
    graph.offload(writer)
    (transfer,) = graph.transfers
    with pytest.raises(CapacityExceeded):
        graph.make_room(states=5)
    assert transfer.adopted_states == {2}, "the state of the fork point is cache, and goes with the copy"
    graph.cancel(other)
    graph.rewind(writer, 2)
    assert 2 in store.write(writer, 9).cursor.segment.parent.segment.states, "computed again"
    graph.drop(writer)
    graph.trim()
    graph.make_room(states=4)
    graph.audit()
    store.drop_all()


def test_states_go_before_pages() -> None:
    """Catches: KV evicted for the sake of states that are cache."""
    store = SmallStore(8, 2, states=2)
    thread = store.root(1, 2)
    store.graph.end_turn(thread)
    store.write(thread, 3)
    store.graph.end_turn(thread)
    store.graph.drop(thread)
    other = store.root(7)
    assert store.sees(other) == [7]
    assert store.graph.match([1, 2, 3]).equal == 3, "the cached KV is still there"
