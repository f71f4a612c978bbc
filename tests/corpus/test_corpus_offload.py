"""The host tier: copies that come too early, too late, twice, wrongly or never."""

from __future__ import annotations

import threading

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


def test_a_page_on_its_way_back_is_not_on_its_way_out() -> None:
    """Catches: a copy to the device counted as room to come, so that nobody else is asked to go."""
    store = SmallStore(4, 2, host=4, prompt=False)
    first, other = waiting(store, 1, 2)
    store.graph.offload(first)
    store.copier.deliver_all()
    store.graph.cancel(other)
    idle, _ = waiting(store, 3, 4)
    with pytest.raises(StillLoading):
        store.engine.compute([first])
    with pytest.raises(CapacityExceeded):
        store.graph.make_room(pages=3)
    assert sorted((transfer.kind, transfer.segment) for transfer in store.graph.transfers)[0] == (
        "offload",
        idle.cursor.segment,
    )


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


def test_a_step_waits_for_a_restore_that_another_has_begun() -> None:
    """Catches: a step that begins with nothing reserved after its wait, or does not wait at all."""
    store = SmallStore(8, 2, host=8, prompt=False)
    thread = store.root(1, 2, 3)
    store.graph.preempt(thread)
    store.copier.deliver_all()
    with pytest.raises(StillLoading):
        store.write(thread, 4)
    tier = store.graph.retention.swapping.host
    assert tier is not None and len(store.graph.transfers) == 1
    tier.timeout_s = 1.0
    late = threading.Timer(0.05, store.copier.deliver_all)
    late.start()
    store.engine.compute([thread])
    late.join()
    assert store.sees(thread) == [1, 2, 3, 4]
    store.drop_all()


def test_what_lies_beyond_a_restore_is_given_back_at_once() -> None:
    """Catches: host pages that a copy does not carry, kept for it or lost with it."""
    store = SmallStore(8, 2, host=8, prompt=False)
    graph = store.graph
    root, other = store.root(1, 2), graph.thread()
    (short,) = graph.fork(root)
    store.write(root, 3, 4, 5, 6)
    graph.wait_threads(root, [other])
    assert graph.preempt(short) == 3, "nobody who runs sees any of it"
    store.copier.deliver_all()
    assert graph.stats().host_pages.used == 3
    with pytest.raises(StillLoading):
        store.engine.compute([short])
    graph.cancel(root)
    graph.drop(root)
    graph.trim()
    assert graph.stats().host_pages.used == 1, "the page that is on its way back"
    store.copier.deliver_all()
    graph.audit()
    store.drop_all()


def test_what_lies_above_memory_in_the_host_tier_stays_computed() -> None:
    """Catches: a parent's KV dropped below which a child's, in the host tier, was computed from it."""
    store = SmallStore(8, 2, host=1)
    graph = store.graph
    parent = store.root(1, 2)
    child = store.child(parent, 3, 4)
    assert graph.preempt(child) == 1 and child.cursor.segment.host_pages
    graph.commit(parent)
    graph.drop(parent)
    graph.preempt(child)
    above = child.cursor.segment.parent
    assert above is not None and above.segment.computed == 2
    store.write(child, 5)
    assert store.sees(child) == [1, 2, 3, 4, 5]
    store.drop_all()
