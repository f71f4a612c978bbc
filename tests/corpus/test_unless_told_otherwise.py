"""What a caller gets who says nothing."""

from __future__ import annotations

from small_store import SmallStore

from octopus.core.graph import Graph
from octopus.core.host import HostTier
from octopus.core.pool import PagePool


def test_a_store_asks_for_no_more_than_it_was_told_to() -> None:
    """Catches: a default that takes room, a rank or a size that nobody asked for."""
    store = SmallStore(2, 2, states=1)
    graph, full = store.graph, store.root(1, 2, 3)
    graph.make_room()
    graph.make_room(pages=0)
    assert (full.priority, graph.thread_from([9])[0].priority) == (0, 0)
    tier = HostTier(pages=1, copier=store.copier)
    assert (tier.states, tier.free_states, tier.timeout_s) == (None, 0, 30.0)
    assert PagePool(1).page_size == 16


def test_a_pass_takes_a_thousand_tokens() -> None:
    """Catches: stretches of any other length than the documented one."""
    graph = Graph(pages=PagePool(65))
    thread = graph.thread()
    graph.append(thread, range(1025))
    with graph.begin_step([thread]) as step:
        assert [(one.start, one.stop) for wave in step.waves for one in wave] == [(0, 1024), (1024, 1025)]
