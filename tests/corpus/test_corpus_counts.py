"""Leaks, counts and double releases: kinds of faults that other stores had, each with an input of our own."""

from __future__ import annotations

from itertools import permutations

import pytest
from small_store import SmallStore

from octopus.core.errors import CapacityExceeded, DoubleRelease, StaleHandle
from octopus.core.pool import PagePool
from octopus.core.thread import Status


@pytest.mark.parametrize("order", list(permutations(range(3))))
def test_a_chain_of_forks_can_be_dropped_in_any_order(order: tuple[int, ...]) -> None:
    """Catches: a fork that is not counted at its parent (apache/tvm PRs 16666, 17045)."""
    store = SmallStore(12, 2)
    a = store.root(1, 2, 3)
    b = store.child(a, 4)
    c = store.child(b, 5)
    for index in order:
        store.graph.drop((a, b, c)[index])
        store.graph.audit()
    store.expect_empty()


def test_an_allocation_that_cannot_be_met_takes_nothing() -> None:
    """Catches: pages lost when a request fails half-way (kvcached 364)."""
    pool = PagePool(4, page_size=2)
    held = pool.allocate(2)
    with pytest.raises(CapacityExceeded):
        pool.allocate(3)
    assert pool.free == 2
    pool.release(held)
    pool.check([])


def test_a_page_is_released_once() -> None:
    """Catches: a second release that frees again, a page twice in one table (transformers' ledger; vllm 1556)."""
    pool = PagePool(4, page_size=2)
    one, other = pool.allocate(2)
    with pytest.raises(DoubleRelease):
        pool.release([one, one])
    assert pool.used == 2, "a refused release has changed nothing"
    pool.release([one])
    with pytest.raises(DoubleRelease):
        pool.release([one])
    (again,) = pool.allocate(1)
    with pytest.raises(StaleHandle):
        pool.unit(one)
    assert again != one
    pool.check([other, again])


def test_every_page_knows_that_it_was_given_back() -> None:
    """Catches: the page with number 0, or the latest generation, taken for one that was never given out."""
    pool = PagePool(3, page_size=2)
    for _ in range(3):
        handles = pool.allocate(3)
        for handle in handles:
            pool.release([handle])
            with pytest.raises(DoubleRelease):
                pool.release([handle])
        with pytest.raises(StaleHandle) as refusal:
            pool.release([handles[0] + (9 << 32)])
        assert refusal.type is StaleHandle


def test_a_tail_page_is_given_back_exactly_once() -> None:
    """Catches: two paths that each infer the length of a finished thread (sglang 12224, sglang-jax 982)."""
    store = SmallStore(8, 4)
    thread = store.root(1, 2, 3, 4)
    store.graph.append(thread, [5])
    store.commit(thread)
    assert store.pages.used == 2
    store.graph.drop(thread)
    with pytest.raises(StaleHandle):
        store.graph.drop(thread)
    store.expect_empty()


def test_a_seam_inside_of_a_page_is_not_freed_twice() -> None:
    """Catches: two adjacent ranges, freed apart, that meet inside one page (sglang 38941, 39387)."""
    store = SmallStore(8, 4)
    thread = store.root(*range(9))
    store.graph.rewind(thread, 6)
    store.graph.audit()
    assert store.pages.used == 2
    store.graph.drop(thread)
    store.expect_empty()


def test_a_preempted_partial_page_comes_back() -> None:
    """Catches: the partial tail of a retracted sequence that stays allocated (sglang PR 22862)."""
    store = SmallStore(8, 2)
    thread = store.root(1, 2, 3)
    assert store.graph.preempt(thread) == 2
    assert store.pages.free == 8
    assert store.graph.preempt(thread) == 0
    assert store.sees(store.write(thread, 4)) == [1, 2, 3, 4]


def test_preempting_everybody_leaves_nothing_behind() -> None:
    """Catches: a retraction that leaves the shared prefix resident for nobody (sglang 33783)."""
    store = SmallStore(12, 2)
    root = store.root(1, 2, 3)
    children = [store.child(root, 7 + n) for n in range(3)]
    for thread in (*children, root):
        store.graph.preempt(thread)
    shared = store.pages.used
    store.graph.make_room(pages=12 - shared)
    for child in children:
        store.engine.compute([child])
    assert [store.sees(child)[-1] for child in children] == [7, 8, 9]
    store.drop_all()


@pytest.mark.parametrize("state", ["new", "recorded", "computed", "waiting", "committed", "preempted", "mid-step"])
def test_a_cancelled_thread_gives_back_what_it_took(state: str) -> None:
    """Catches: a quota or count that one of the ways out forgets (sglang PRs 30053, 36926; vllm 44100)."""
    store = SmallStore(12, 2, host=4)
    graph = store.graph
    other = store.root(9)
    before = graph.stats().pages
    thread = graph.thread()
    if state != "new":
        graph.append(thread, [1, 2, 3])
    if state in ("computed", "waiting", "committed", "preempted"):
        store.engine.compute([thread])
    if state == "waiting":
        graph.wait_threads(thread, [other])
    if state == "committed":
        graph.commit(thread)
    if state == "preempted":
        graph.preempt(thread)
    if state == "mid-step":
        store.engine.open([thread])
        graph.cancel(thread)
        store.engine.advance()
        store.engine.close()
    graph.cancel(thread)
    graph.cancel(thread)
    graph.drop(thread)
    graph.trim()
    assert graph.stats().pages == before
    store.drop_all()


def test_a_match_that_nobody_uses_holds_nothing() -> None:
    """Catches: a look-up that pins what it found (LMCache 1034; vllm 44100)."""
    store = SmallStore(4, 2)
    thread = store.root(1, 2, 3)
    match = store.graph.match([1, 2, 3, 4])
    assert match.tokens == 3
    store.graph.drop(thread)
    store.expect_empty()


def test_a_refused_admission_gives_its_state_slot_back() -> None:
    """Catches: the slot that matching took and refusing forgot (sglang PR 16067)."""
    store = SmallStore(2, 2, states=2)
    thread = store.root(1, 2)
    (child,) = store.graph.fork(thread)
    store.graph.append(child, [3, 4, 5])
    with pytest.raises(CapacityExceeded):
        store.engine.compute([child])
    store.graph.audit()
    assert store.graph.stats().states.used == 1
    store.graph.drop(child)
    assert thread.status is Status.RUNNING
    assert store.sees(store.write(thread, 6)) == [1, 2, 6]
    store.drop_all()


def test_moving_to_the_host_and_back_changes_no_count() -> None:
    """Catches: a count raised on each way out and never lowered (LMCache 1756)."""
    store = SmallStore(8, 2, host=8)
    thread = store.root(1, 2, 3)
    figures = store.graph.stats().pages
    for _ in range(3):
        assert store.graph.preempt(thread) == 2
        assert store.graph.stats().host_pages.free == 6
        store.engine.compute([thread])
        assert store.graph.stats().pages == figures
        assert store.graph.stats().host_pages.free == 8
    assert store.sees(thread) == [1, 2, 3]
    store.drop_all()


def test_letting_go_at_the_wrong_place_raises() -> None:
    """Catches: a release at another holder's place that drops that holder's count (sglang PR 27038)."""
    store = SmallStore(8, 2)
    thread = store.root(1, 2, 3)
    store.graph.fork(thread)
    retention, cursor = store.graph.retention, thread.cursor
    with pytest.raises(KeyError):
        retention.let_go(cursor._replace(length=1))
    assert store.sees(thread) == [1, 2, 3]
