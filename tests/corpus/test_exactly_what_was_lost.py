"""Memory that does not come back from the host tier: what is computed again is that, and what hangs on it."""

from __future__ import annotations

import pytest
from small_store import SmallStore

from octopus.core.errors import StillLoading


def test_what_stayed_on_the_device_is_not_computed_again() -> None:
    """Catches: a segment computed again from its start although only its end was lost."""
    store = SmallStore(16, 2, host=8)
    thread = store.root(1, 2)
    (fork,) = store.graph.fork(thread)
    store.write(thread, 3, 4, 5, 6)
    assert store.graph.preempt(thread) == 2, "the fork sees the first page"
    store.copier.refuses = True
    store.engine.compute([thread])
    assert store.graph.stats().counters.tokens_recomputed == 4
    assert (store.sees(thread), store.sees(fork)) == ([1, 2, 3, 4, 5, 6], [1, 2])
    store.copier.refuses = False
    store.drop_all()


def test_a_lost_end_whose_beginning_was_given_back_is_computed_from_the_start() -> None:
    """Catches: an end computed again from a beginning that nobody keeps any more."""
    store = SmallStore(16, 2, host=8)
    root = store.root(1)
    reader, source = store.child(root, 2), store.child(root, 3, 4, 5, 6)
    store.graph.read_thread(reader, source, last=2)
    read = source.cursor.segment
    store.graph.cancel(source)
    assert store.graph.stats().pages.used == 3, "the first page of what is read was given back"
    store.write(reader, 7)
    wait = store.graph.wait_threads(reader, [root])
    store.graph.wait_threads(root, [store.graph.thread()])
    assert store.graph.offload(reader) == 4
    store.graph.withdraw(wait)
    store.copier.refuses = True
    store.engine.compute([reader])
    assert read.computed == 4 and len(store.sees(reader)) == 1 + 1 + 2 + 1
    store.copier.refuses = False
    store.drop_all()


def test_two_losses_side_by_side_are_both_computed_again() -> None:
    """Catches: a search for what is lost that ends at the first find."""
    store = SmallStore(32, 2, host=16, prompt=False)
    base = store.root(1, 2)
    line, source = store.child(base, 3, 4), store.child(base, 5, 6)
    (leaf,) = store.graph.fork(line)
    store.graph.read_thread(leaf, source)
    store.write(leaf, 7, 8)
    for thread in (base, line, source):
        store.commit(thread)
    wait = store.graph.wait_threads(leaf, [store.graph.thread()])
    assert store.graph.offload(leaf) == 4
    store.copier.deliver_all()
    store.graph.withdraw(wait)
    store.graph.append(leaf, [9])
    with pytest.raises(StillLoading):
        store.engine.compute([leaf])
    lost = (line.cursor.segment, source.cursor.segment)
    while store.copier.pending:
        store.copier.deliver(0, "failed" if store.copier.pending[0].segment in lost else "ok")
    store.engine.compute([leaf])
    assert store.graph.stats().counters.tokens_recomputed == 4
    assert store.sees(leaf) == [1, 2, 3, 4, 5, 6, 7, 8, 9]
    store.drop_all()


def test_where_nothing_was_lost_all_is_computed_side_by_side() -> None:
    """Catches: threads that were preempted computed one after the other, as after a loss."""
    store = SmallStore(16, 2)
    threads = [store.root(number, number) for number in range(3)]
    for thread in threads:
        assert store.graph.preempt(thread) == 1
    with store.graph.begin_step(threads) as step:
        assert [len(wave) for wave in step.waves] == [3]


def test_a_state_beyond_a_rewind_goes_wherever_it_is_on_its_way() -> None:
    """Catches: a state in the host tier that goes with its copy's, or stays without an owner."""
    store = SmallStore(32, 2, states=6, host=16, host_states=6, prompt=False)
    thread = store.graph.thread()
    for turn in ((1, 2), (3, 4), (5, 6)):
        store.write(thread, *turn)
        store.graph.end_turn(thread)
    wait = store.graph.wait_threads(thread, [store.graph.thread()])
    store.graph.offload(thread)
    store.copier.deliver_all()
    store.graph.withdraw(wait)
    store.graph.append(thread, [7])
    with pytest.raises(StillLoading):
        store.engine.compute([thread])
    assert set(thread.cursor.segment.host_states) == {2, 4, 6}
    assert [set(transfer.states) for transfer in store.graph.transfers] == [{6}]
    store.graph.rewind(thread, 3)
    store.graph.audit()
    assert store.graph.stats().host_states.used == 2, "the first, and the one that is on its way"
    store.copier.deliver_all()
    assert store.graph.stats().host_states.used == 1
    store.drop_all()


def test_a_state_given_up_while_it_is_copied_stays_the_copys() -> None:
    """Catches: a slot given to another while a copy still reads it."""
    store = SmallStore(16, 2, states=2, host=8, host_states=2, prompt=False)
    thread = store.root(1, 2, 3, 4)
    wait = store.graph.wait_threads(thread, [store.graph.thread()])
    store.graph.offload(thread)
    store.graph.withdraw(wait)
    store.graph.rewind(thread, 1)
    store.graph.audit()
    assert not thread.cursor.segment.states and store.graph.stats().states.used == 1
    store.copier.deliver_all()
    stats = store.graph.stats()
    assert (stats.states.used, stats.host_states.used) == (0, 0)
    store.drop_all()


def test_a_state_goes_while_pages_are_copied_to_a_tier_without_states() -> None:
    """Catches: a state looked for in a pool that is not there."""
    store = SmallStore(16, 2, states=2, host=8, prompt=False)
    thread = store.root(1, 2, 3, 4)
    wait = store.graph.wait_threads(thread, [store.graph.thread()])
    assert store.graph.offload(thread) == 2
    store.graph.withdraw(wait)
    store.graph.rewind(thread, 1)
    assert store.graph.stats().states.used == 0
    store.copier.deliver_all()
    store.drop_all()
