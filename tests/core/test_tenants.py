"""Tenants that share a store find their own prefixes and nobody else's, and cannot tell that others were there.

Catches: a salt that one tier forgets; fields of a key that run into each other; a thread that goes on from a found
prefix under another name; a look-up that finds nothing and yet says how much is there; saved work that can be timed.
"""

from __future__ import annotations

import random

import pytest
from core.content import ContentEngine

from octopus.core.graph import Graph
from octopus.core.namespace import PLAIN, Namespace
from octopus.core.pool import NO_PAGE

TEXT = [3, 1, 4, 1, 5, 9, 2, 6, 5, 3, 5]
MINE = Namespace(adapter="a", salt="mine")
OTHERS = (
    PLAIN, Namespace(adapter="a"), Namespace(salt="mine"), Namespace(adapter="a", salt="yours"),
    Namespace(adapter="ami", salt="ne"), Namespace(adapter="", salt="amine"), Namespace(adapter="mine", salt="a"),
    Namespace(adapter="a", salt="mine "), Namespace(adapter="a", salt="mine\x00"), Namespace(adapter="a\x00mine"),
)  # fmt: skip


def stored(tier: str, states: int | None) -> ContentEngine:
    """A text of mine, whose memory lies on the device, in the host tier, or is a cached line that nobody holds."""
    engine = ContentEngine(pages=60, states=states, host_pages=20, host_states=8)
    thread, other = engine.thread(TEXT, namespace=MINE), engine.thread([1])
    engine.compute(thread, other)
    engine.graph.end_turn(thread)
    segment = thread.cursor.segment
    if tier == "host":
        engine.graph.wait_threads(thread, [other])
        engine.graph.offload(thread)
        assert set(segment.pages) == {NO_PAGE} and segment.host_pages
    elif tier == "cached":
        engine.graph.drop(thread)
        assert engine.graph.stats().pages_cached
    return engine


TIERS = [(tier, states) for tier in ("device", "host", "cached") for states in (None, 16)]


@pytest.mark.parametrize(("tier", "states"), TIERS)
def test_the_same_salt_hits_and_another_misses(tier: str, states: int | None) -> None:
    """In every tier. Mutations: an index without namespaces; a key of adapter and salt joined without their lengths."""
    engine = stored(tier, states)
    graph = engine.graph
    for other in OTHERS:
        assert graph.match(TEXT, namespace=other) == (None, 0, 0)
    assert graph.match(TEXT, namespace=MINE)[1:] == (len(TEXT), len(TEXT))
    graph.audit()


@pytest.mark.parametrize(("tier", "states"), TIERS)
def test_another_tenants_work_costs_what_it_costs_in_an_empty_store(tier: str, states: int | None) -> None:
    """What can be timed is what is computed. Mutation: work that is saved by pages of somebody else."""
    engine, empty = stored(tier, states), ContentEngine(pages=60, states=states)
    costs = []
    for one in (engine, empty):
        before = one.graph.stats().counters
        thread, found = one.graph.thread_from(TEXT, namespace=Namespace(salt="yours"))
        one.compute(thread)
        after = one.graph.stats().counters
        costs.append((after.tokens_computed - before.tokens_computed, after.pages_restored, found))
    assert costs[0] == costs[1] and costs[0][0] == len(TEXT)


def test_who_goes_on_from_a_prefix_stays_where_it_was_found() -> None:
    """Catches: what is appended to a found prefix, filed for others to find."""
    engine = stored("device", None)
    thread, found = engine.graph.thread_from([*TEXT, 8, 8], namespace=MINE)
    engine.compute(thread)
    (child,) = engine.graph.fork(thread)
    engine.graph.append(child, [7])
    engine.compute(child)
    assert found.tokens == len(TEXT) and thread.namespace == child.namespace == MINE
    assert engine.graph.match([*TEXT, 8, 8, 7], namespace=MINE).tokens == len(TEXT) + 3
    assert all(engine.graph.match([*TEXT, 8, 8, 7], namespace=other).equal == 0 for other in OTHERS)
    engine.graph.audit()


def test_new_weights_hide_all_of_it() -> None:
    for tier, states in TIERS:
        engine = stored(tier, states)
        engine.graph.advance_weights()
        assert engine.graph.match(TEXT, namespace=MINE) == (None, 0, 0)


@pytest.mark.parametrize("seed", range(4))
def test_any_history_of_tenants_finds_what_each_alone_would(seed: int) -> None:
    """Against one graph for each tenant. Catches: a path filed under a neighbour's name after forks and evictions."""
    rng = random.Random(seed)
    spaces = [PLAIN, Namespace(salt="a"), Namespace(salt="b"), Namespace(adapter="a")]
    together, alone = Graph(), {space: Graph() for space in spaces}
    for _ in range(120):
        space = rng.choice(spaces)
        tokens = [rng.randrange(2) for _ in range(rng.randint(1, 8))]
        for graph in (together, alone[space]):
            thread, _ = graph.thread_from(tokens, namespace=space)
            (child,) = graph.fork(thread)
            graph.append(child, tokens[:2])
        asked = [rng.randrange(2) for _ in range(12)]
        for one in spaces:
            expected, found = alone[one].match(asked, namespace=one), together.match(asked, namespace=one)
            assert (found.tokens, found.equal) == (expected.tokens, expected.equal)
            assert found.cursor is None or found.cursor.segment.namespace == one
