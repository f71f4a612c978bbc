"""The host tier: copies that come too early, too late, twice, wrongly or never."""

from __future__ import annotations

import pytest
from small_store import SmallStore

from fuzz.device import TORN
from octopus.core.errors import CapacityExceeded, StillLoading
from octopus.core.thread import Status


def waiting(store: SmallStore, *tokens: int):
    """A thread with these tokens that waits for another, which may be cancelled to wake it."""
    other = store.graph.thread()
    thread = store.root(*tokens)
    store.graph.wait_threads(thread, [other])
    return thread, other


def test_a_page_under_copy_is_nobody_elses() -> None:
    """Catches: a page reused before its copy was made: other prompts' tokens come back (trtllm 8813, vllm 45704)."""
    store = SmallStore(4, 2, host=4, prompt=False)
    thread, other = waiting(store, 1, 2, 3)
    graph = store.graph
    assert graph.offload(thread) == 2
    (transfer,) = graph.transfers
    written = store.engine.uids(thread.cursor.segment, 0, 3)
    graph.cancel(thread)
    graph.drop(thread)
    graph.trim()
    store.root(7, 8, 9)
    with pytest.raises((CapacityExceeded, StillLoading)):
        store.root(5)
    store.copier.deliver_all()
    copied = [uid for _, unit in transfer.page_units for uid in store.host.pages[unit]]
    assert copied[:3] == written
    graph.drop(other)
    store.drop_all()


def test_a_host_page_under_restore_is_nobody_elses() -> None:
    """Catches: a host copy evicted, or overwritten, while it is loaded back (sglang PRs 31427, 26728; vllm 47282)."""
    store = SmallStore(8, 2, host=1, prompt=False)
    thread, other = waiting(store, 1, 2)
    store.graph.offload(thread)
    store.copier.deliver_all()
    store.graph.cancel(other)
    second, third = waiting(store, 5, 6)
    with pytest.raises(StillLoading):
        store.engine.compute([thread])
    assert store.graph.offload(second) == 0, "the one host page is still read"
    store.copier.deliver_all()
    store.engine.compute([thread])
    assert store.sees(thread) == [1, 2] and store.sees(second) == [5, 6]
    store.graph.drop(third)
    store.drop_all()


def test_without_room_on_the_host_the_page_stays() -> None:
    """Catches: a failed backup that is treated as one (sglang PR 27108, Mooncake PR 1899)."""
    store = SmallStore(3, 2, host=0)
    thread, other = waiting(store, 1, 2, 3)
    assert store.graph.offload(thread) == 0
    store.root(9)
    with pytest.raises(CapacityExceeded):
        store.root(7, 8, 9)
    store.graph.cancel(other)
    assert store.sees(store.graph.threads[1]) == [1, 2, 3]


@pytest.mark.parametrize("outcome", ["ok twice", "failed, then ok", "ok, then failed"])
def test_only_the_first_outcome_counts(outcome: str) -> None:
    """Catches: a second completion for a request that is gone (vllm 43226, 46240, 25067)."""
    store = SmallStore(6, 2, host=4, prompt=False)
    thread, other = waiting(store, 1, 2, 3)
    store.graph.offload(thread)
    store.copier.deliver(0, outcome)
    store.copier.repeat()
    store.graph.audit()
    store.graph.cancel(other)
    store.copier.prompt = True
    store.engine.compute([thread])
    assert store.sees(thread) == [1, 2, 3]
    assert store.graph.stats().counters.completions_ignored == 2
    store.drop_all()


@pytest.mark.parametrize("outcome", ["ok", "failed"])
@pytest.mark.parametrize("kind", ["offload", "restore"])
def test_a_cancelled_thread_waits_for_no_copy(kind: str, outcome: str) -> None:
    """Catches: pages held for ever, or freed twice, when a copy outlives its thread (vllm 46283, vllm-ascend 16662)."""
    store = SmallStore(8, 2, host=4, prompt=False)
    thread, other = waiting(store, 1, 2, 3)
    store.graph.offload(thread)
    if kind == "restore":
        store.copier.deliver_all()
        store.graph.cancel(other)
        with pytest.raises(StillLoading):
            store.engine.compute([thread])
    store.graph.cancel(thread)
    store.graph.drop(thread)
    store.graph.audit()
    store.copier.deliver(0, outcome)
    store.graph.audit()
    store.graph.drop(other)
    store.expect_empty()


def test_a_copy_that_fails_to_come_back_is_computed_again_once() -> None:
    """Catches: a doomed load that is tried for ever, and rubbish that is read (vllm PR 49328)."""
    store = SmallStore(8, 2, host=4, sealed=True)
    thread = store.root(1, 2, 3)
    store.graph.preempt(thread)
    store.host.pages[0][0] = TORN
    store.engine.compute([thread])
    assert store.sees(thread) == [1, 2, 3]
    counters = store.graph.stats().counters
    assert counters.restores_started <= 2 and counters.seals_broken >= 1 and counters.tokens_recomputed > 0
    store.drop_all()


def test_a_failed_load_is_noticed_by_the_next_step() -> None:
    """Catches: a sole thread that never runs again because nothing else happens (local-inference-lab/vllm 191)."""
    store = SmallStore(8, 2, host=4, prompt=False)
    thread = store.root(1, 2, 3)
    store.graph.preempt(thread)
    store.copier.deliver_all()
    with pytest.raises(StillLoading):
        store.engine.compute([thread])
    store.copier.deliver(0, "failed")
    store.engine.compute([thread])
    assert store.sees(thread) == [1, 2, 3]
    store.drop_all()


def test_a_recalled_page_is_used_where_it_is() -> None:
    """Catches: pages freed at the first chunk of an offload while they are attended to (sglang 24226)."""
    store = SmallStore(8, 2, host=4, prompt=False)
    thread, other = waiting(store, 1, 2, 3)
    store.graph.offload(thread)
    store.graph.cancel(other)
    store.write(thread, 4)
    store.copier.deliver_all()
    store.graph.drop(other)
    assert store.sees(store.write(thread, 5)) == [1, 2, 3, 4, 5]
    assert store.graph.stats().host_pages.free == 4
    store.drop_all()


def test_only_what_is_computed_is_copied() -> None:
    """Catches: an index that runs past tokens whose data is not there yet (vllm PR 36052)."""
    store = SmallStore(8, 2, host=4)
    thread = store.root(1, 2)
    store.graph.append(thread, [3, 4, 5])
    store.graph.preempt(thread)
    assert store.graph.stats().host_pages.used <= 1
    store.engine.compute([thread])
    assert store.sees(thread) == [1, 2, 3, 4, 5]


def test_copies_that_never_end_do_not_pile_up() -> None:
    """Catches: write-backs without a bound (sglang-jax PR 1411)."""
    store = SmallStore(8, 2, host=8, prompt=False)
    thread, _ = waiting(store, 1, 2, 3)
    for _ in range(50):
        store.graph.offload(thread)
        store.graph.preempt(thread)
    assert len(store.copier.pending) == 1
    assert store.graph.stats().host_pages.used == 2


def test_tier_counters_agree_with_a_recount() -> None:
    """Catches: a tier read after the swap, so that counts go below zero (trtllm PR 12834)."""
    store = SmallStore(2, 2, host=1)
    for number in range(6):
        thread = store.root(number)
        store.graph.preempt(thread)
        store.graph.audit()
        store.commit(thread)
        if number != 2:
            store.graph.drop(thread)
    stats = store.graph.stats()
    for figures in (stats.pages, stats.host_pages):
        assert figures.free >= 0 and figures.free + figures.fenced + figures.used == figures.capacity
    store.drop_all()


def test_a_waiting_thread_is_still_waiting_when_its_pages_are_away() -> None:
    """Catches: a status that memory management changes (PraisonAI 3544 in another dress)."""
    store = SmallStore(8, 2, host=4)
    thread, other = waiting(store, 1, 2, 3)
    store.graph.offload(thread)
    assert thread.status is Status.WAITING
    store.graph.cancel(other)
    assert thread.status is Status.RUNNING
    store.engine.compute([thread])
    assert store.sees(thread) == [1, 2, 3]
