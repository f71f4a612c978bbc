"""Figures that say what has happened: from zero, by one for each, and never for what did not help."""

from __future__ import annotations

import pytest
from small_store import SmallStore

from octopus.core.errors import CapacityExceeded
from octopus.core.seals import Seals


def test_a_new_store_has_done_nothing() -> None:
    """Catches: a counter that does not begin at 0."""
    stats = SmallStore(4, 2, states=2, host=3, host_states=1).graph.stats()
    figures = stats.flat()
    full = {"pages": 4, "states": 2, "host_pages": 3, "host_states": 1}
    for pool, capacity in full.items():
        for part, expected in (("capacity", capacity), ("free", capacity), ("fenced", 0), ("used", 0)):
            assert figures.pop(f"{pool}_{part}") == expected
    assert set(figures.values()) == {0}


def test_each_rung_is_counted_once_and_helps_when_it_helps() -> None:
    """Catches: a rung counted as a help although it gave nothing, or not counted at all."""
    store = SmallStore(4, 2, host=2, prompt=False)
    store.graph.drop(store.root(1))
    store.graph.make_room(pages=4)
    figures = store.graph.stats().flat()
    assert (figures["evict_tried"], figures["evict_helped"]) == (1, 1)
    assert (figures["evicted_segments"], figures["evicted_pages"]) == (1, 1)
    assert figures["offload_tried"] == figures["preempt_tried"] == figures["refused"] == 0
    threads = [store.root(n, n, n, n) for n in range(2)]
    with pytest.raises(CapacityExceeded):
        store.graph.make_room(pages=1)
    figures = store.graph.stats().flat()
    assert figures["refused"] == 1
    assert (figures["evict_tried"], figures["evict_helped"]) == (2, 1)
    assert (figures["offload_tried"], figures["offload_helped"]) == (1, 0)
    assert (figures["preempt_tried"], figures["preempt_helped"]) == (1, 0), "the copy is still under way"
    assert figures["preempted_swapped"] == 1 and figures["preempted_recomputed"] == 0
    assert figures["pages_in_transfer"] == 2 and figures["transfers"] == 1
    assert threads


def test_what_moves_is_counted_by_the_page() -> None:
    """Catches: copies counted for pages, failures for successes, tokens computed again for new ones."""
    store = SmallStore(8, 2, host=8)
    thread = store.root(1, 2, 3, 4, 5)
    store.graph.preempt(thread)
    store.engine.compute([thread])
    figures = store.graph.stats().flat()
    assert (figures["offloads_started"], figures["offloads_done"], figures["offloads_failed"]) == (1, 1, 0)
    assert (figures["restores_started"], figures["restores_done"], figures["restores_failed"]) == (1, 1, 0)
    assert figures["pages_offloaded"] == figures["pages_restored"] == 3
    assert (figures["tokens_computed"], figures["tokens_recomputed"]) == (5, 0)
    store.copier.refuses = True
    store.graph.preempt(thread)
    store.copier.refuses = False
    store.engine.compute([thread])
    figures = store.graph.stats().flat()
    assert (figures["offloads_started"], figures["offloads_failed"], figures["pages_offloaded"]) == (2, 1, 3)
    assert figures["tokens_computed"] == 5 + figures["tokens_recomputed"]


def test_what_is_looked_up_and_what_is_checked_is_counted() -> None:
    """Catches: tokens asked for counted as found, seals compared and not counted."""
    store = SmallStore(8, 2, sealed=True)
    thread = store.root(1, 2, 3)
    assert store.graph.stats().flat()["seals_checked"] == 0
    store.write(thread, 4)
    store.graph.match([1, 2, 9])
    store.graph.match([7])
    figures = store.graph.stats().flat()
    assert (figures["match_calls"], figures["match_tokens"]) == (2, 2)
    assert figures["seals_checked"] > 0 and figures["seals_broken"] == 0
    assert (figures["segments"], figures["segments_cached"], figures["threads"]) == (1, 0, 1)
    store.graph.drop(thread)
    figures = store.graph.stats().flat()
    assert (figures["segments_cached"], figures["pages_cached"], figures["threads"]) == (1, 2, 0)


def test_states_are_checked_and_counted_like_pages() -> None:
    """Catches: a state that comes back unchecked, or is counted the wrong way."""
    store = SmallStore(8, 2, states=3, host=8, host_states=2, sealed=True)
    thread = store.root(1, 2, 3)
    store.graph.preempt(thread)
    before = store.graph.stats().counters.seals_checked
    store.write(thread, 4)
    restored, read = 2 + 1, 2
    assert store.graph.stats().counters.seals_checked == before + restored + read
    assert Seals(store.device).rate == 1 / 64, "unless told otherwise"
