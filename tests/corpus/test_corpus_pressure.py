"""Memory pressure: deadlocks, cascades and silent loss, as other stores had them."""

from __future__ import annotations

import pytest
from small_store import SmallStore

from octopus.core.errors import CapacityExceeded
from octopus.core.thread import Status


def test_what_can_never_fit_is_refused_at_once() -> None:
    """Catches: a request larger than the pool that hangs, or evicts everybody first (vllm 35541, vllm-rbln 179)."""
    store = SmallStore(4, 4, host=8)
    cached = store.root(1)
    store.graph.drop(cached)
    thread = store.graph.thread()
    store.graph.append(thread, list(range(17)))
    with pytest.raises(CapacityExceeded):
        store.engine.compute([thread])
    assert store.graph.match([1]).tokens == 1, "nothing was evicted for what cannot be"
    assert store.graph.stats().counters.evict_tried == 0


def test_victims_that_free_nothing_are_not_taken_one_after_the_other() -> None:
    """Catches: each preemption frees fenced pages only, so all are preempted (vllm 49674, vllm-ascend 16315)."""
    store = SmallStore(4, 4, host=4, prompt=False)
    victims = [store.root(n) for n in range(4)]
    with pytest.raises(CapacityExceeded):
        store.graph.make_room(pages=1)
    assert len(store.copier.pending) <= 1
    counters = store.graph.stats().counters
    assert counters.preempted_swapped + counters.preempted_recomputed <= 1
    store.copier.deliver_all()
    store.graph.make_room(pages=1)
    store.copier.prompt = True
    for victim in victims:
        store.engine.compute([victim])
        assert store.sees(victim)


def test_two_that_need_more_together_than_there_is_both_finish() -> None:
    """Catches: two half-admitted requests that hold what the other needs (vllm 45387, 45388, inference-sim 529)."""
    store = SmallStore(7, 2, host=7)
    a, b = store.root(*range(8)), store.root(*range(10, 15))
    for number in range(6):
        store.write(a, 50 + number)
        store.write(b, 60 + number)
    assert store.sees(a) == [*range(8), *range(50, 56)]
    store.engine.compute([b])
    assert store.sees(b) == [*range(10, 15), *range(60, 66)]
    assert store.graph.stats().counters.preempt_helped > 0
    store.drop_all()


def test_a_refusal_names_who_holds_the_memory() -> None:
    """Catches: idle views that pin everything, with nobody named (sglang 27024)."""
    store = SmallStore(4, 2)
    idle = [store.commit(store.root(n, n)) for n in range(4)]
    thread = store.graph.thread()
    store.graph.append(thread, [1])
    with pytest.raises(CapacityExceeded, match=f"thread {idle[0].id}"):
        store.engine.compute([thread])
    store.graph.drop(idle[0])
    store.engine.compute([thread])
    assert store.sees(thread) == [1]


def test_idle_threads_give_way_where_there_is_a_host() -> None:
    """Catches: the same idle views, which a second tier could take (sglang 27024, trtllm 12306)."""
    store = SmallStore(4, 2, host=4)
    idle = [store.commit(store.root(n, n)) for n in range(4)]
    thread = store.root(1, 2, 3)
    assert store.sees(thread) == [1, 2, 3]
    readers = store.graph.fork(thread)
    store.graph.read_thread(readers[0], idle[0])
    assert store.sees(store.write(readers[0], 9)) == [1, 2, 3, 0, 0, 9]
    store.drop_all()


def test_both_pools_are_admitted_together() -> None:
    """Catches: a second pool left out of admission (trtllm PRs 15401, 18660)."""
    store = SmallStore(64, 2, states=2)
    one, other = store.root(1), store.root(2)
    third = store.graph.thread()
    store.graph.append(third, [3])
    pages, states = store.graph.stats().pages, store.graph.stats().states
    with pytest.raises(CapacityExceeded):
        store.engine.compute([one, other, third])
    assert (store.graph.stats().pages, store.graph.stats().states) == (pages, states)


def test_states_that_all_are_needed_refuse_and_do_not_crash() -> None:
    """Catches: an assertion when every state is locked (sglang PR 36770)."""
    store = SmallStore(32, 2, states=3)
    root = store.root(1)
    children = [store.commit(store.child(root, token)) for token in (2, 3)]
    (grandchild,) = store.graph.fork(children[0].snapshots[1])
    store.graph.append(grandchild, [4])
    with pytest.raises(CapacityExceeded):
        store.engine.compute([grandchild])
    store.graph.drop(children[1])
    store.engine.compute([grandchild])
    assert store.sees(grandchild) == [1, 2, 4]


def test_progress_is_kept_in_small_steps() -> None:
    """Catches: a prefill whose progress is never recorded and which loops until memory is out (sglang 36855)."""
    store = SmallStore(16, 2)
    thread = store.root()
    for number in range(20):
        store.write(thread, number)
        assert thread.cursor.segment.computed == number + 1
    assert store.engine.tokens_computed == 20
    store.drop_all()


def test_a_preempted_thread_goes_on_where_it_was() -> None:
    """Catches: a sequence that finds its own prefix again with stale counts (nano-vllm PRs 211, 217, 144)."""
    store = SmallStore(8, 2)
    thread = store.root(1, 2, 3, 4, 5)
    store.graph.preempt(thread)
    store.engine.compute([thread])
    assert thread.status is Status.RUNNING
    assert store.sees(store.write(thread, 6)) == [1, 2, 3, 4, 5, 6]
    full, match = store.graph.thread_from([1, 2, 3, 4, 5, 6])
    assert match.tokens == 6
    store.engine.compute([full])
    assert store.sees(store.write(full, 7)) == [1, 2, 3, 4, 5, 6, 7]
    store.drop_all()


def test_cache_goes_before_anybody_is_disturbed() -> None:
    """Catches: running threads preempted while there is cache to evict."""
    store = SmallStore(4, 2, host=4)
    running = store.root(1, 2)
    store.graph.drop(store.root(5, 6, 7))
    store.root(8, 9, 10)
    counters = store.graph.stats().counters
    assert counters.evicted_segments == 1 and counters.preempt_tried == counters.offload_tried == 0
    assert store.sees(running) == [1, 2]
