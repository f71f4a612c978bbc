"""Prefixes are found across threads and episodes, token by token, and only where they may be used."""

from __future__ import annotations

import random
from array import array

import numpy as np
import pytest
from core.content import ContentEngine

from octopus.core.ancestry import path_tokens
from octopus.core.cursor import Cursor
from octopus.core.graph import Graph
from octopus.core.namespace import PLAIN, Namespace
from octopus.core.pool import NO_PAGE
from octopus.core.radix import Node
from octopus.core.thread import Status


def longest(graph: Graph, tokens: list[int]) -> int:
    """The longest match by looking at every path."""
    best = 0
    for segment in graph.segments:
        if segment.mounting is not None or not segment.computed or segment.pages[0] == NO_PAGE:
            continue
        path = path_tokens(Cursor(segment, segment.computed))
        equal = 0
        while equal < min(len(path), len(tokens)) and path[equal] == tokens[equal]:
            equal += 1
        best = max(best, equal)
    return best


def grown(engine: ContentEngine, rng: random.Random, calls: int) -> None:
    """A random history of few different tokens, so that prefixes meet often."""
    graph = engine.graph
    for _ in range(calls):
        running = [thread for thread in graph.threads if thread.status is Status.RUNNING]
        if len(running) < 3:
            graph.append(graph.thread(), [rng.randrange(2) for _ in range(rng.randint(1, 9))])
            continue
        thread = rng.choice(running)
        kind = rng.choice(["append", "append", "compute", "compute", "fork", "rewind", "drop", "read", "evict", "from"])
        if kind == "append":
            graph.append(thread, [rng.randrange(2) for _ in range(rng.randint(1, 6))])
        elif kind == "compute":
            engine.compute(*rng.sample(running, 2))
        elif kind == "fork":
            graph.fork(thread, 2)
        elif kind == "rewind":
            graph.rewind(thread, rng.randint(0, thread.own_tokens))
        elif kind == "drop":
            graph.drop(thread)
        elif kind == "read" and rng.random() < 0.3:
            graph.read_thread(thread, rng.choice(running))
        elif kind == "evict":
            graph.evict()
        elif kind == "from":
            graph.thread_from([rng.randrange(2) for _ in range(rng.randint(1, 12))])


@pytest.mark.parametrize("seed", range(12))
def test_the_longest_match_is_found_after_any_history(seed: int) -> None:
    """Catches: a segment filed under its neighbour's tokens, a phantom after an eviction, a match that ends early."""
    engine, rng = ContentEngine(pages=4000, rate=None), random.Random(seed)
    hits = 0
    for _ in range(25):
        grown(engine, rng, 12)
        for _ in range(6):
            tokens = [rng.randrange(2) for _ in range(rng.randint(0, 14))]
            found = engine.graph.match(tokens)
            assert (found.tokens, found.equal) == (longest(engine.graph, tokens),) * 2
            assert (found.cursor is None) == (found.tokens == 0)
            if found.cursor is not None:
                assert path_tokens(found.cursor) == tokens[: found.tokens]
                assert found.cursor.length <= found.cursor.segment.computed
                hits += 1
        engine.graph.audit()
    assert hits > 50


@pytest.mark.parametrize("seed", range(6))
def test_a_match_can_be_gone_on_from(seed: int) -> None:
    """Catches: a page that a match shows and that is given back, a state of another place, a key of another path."""
    states = 4000 if seed % 2 else None
    engine, rng = ContentEngine(pages=4000, states=states, rate=None), random.Random(seed)
    engine.names = dict.fromkeys(range(10_000), 0)  # Whoever writes, the keys are the same.
    for _ in range(40):
        grown(engine, rng, 8)
        tokens = [rng.randrange(2) for _ in range(rng.randint(1, 14))]
        thread, found = engine.graph.thread_from(tokens)
        assert path_tokens(thread.cursor) == tokens and thread.own_tokens == len(tokens)
        fresh = ContentEngine(pages=40, states=None if states is None else 40, rate=None)
        fresh.names = dict.fromkeys(range(100), 0)
        assert engine.sample(thread) == fresh.sample(fresh.thread(tokens))
        engine.graph.rewind(thread, 0)
        engine.graph.drop(thread)
        engine.graph.audit()
        assert states is not None or not found.limited


def test_a_hybrid_goes_on_from_a_kept_state_and_says_so() -> None:
    """Catches: attention that is restored without its state, or with one of a later place."""
    engine = ContentEngine(pages=40, states=20, chunk_tokens=100)
    graph = engine.graph
    thread = engine.thread([1, 2, 3])
    graph.end_turn(thread)
    graph.append(thread, [4, 5, 6])
    engine.compute(thread)
    found = graph.match([1, 2, 3, 4, 5, 9])
    assert (found.tokens, found.equal, found.limited) == (3, 5, True)
    assert graph.match([1, 2, 3, 4, 5, 6, 7])[1:] == (6, 6)
    assert graph.match([1, 2])[:2] == (None, 0)


def test_nothing_is_found_before_it_is_computed() -> None:
    """Catches: a page that can be found before its data is written; one that stays to be found after a rewind."""
    engine = ContentEngine(pages=40)
    graph = engine.graph
    thread = engine.thread([1, 2, 3, 4])
    with graph.begin_step([thread]) as step:
        assert graph.match([1, 2, 3, 4]).tokens == 0
        engine.write(step.waves[0][0], step)
        assert graph.match([1, 2, 3, 4]).tokens == 4
    graph.rewind(thread, 2)
    assert graph.match([1, 2, 3, 4]).tokens == 2
    graph.cancel(thread)
    assert graph.match([1, 2, 3, 4]).tokens == 2  # A cached line is found ...
    graph.trim()
    assert graph.match([1, 2, 3, 4]).tokens == 0  # ... until it is evicted.


def test_a_graph_that_only_records_finds_what_is_recorded() -> None:
    """Catches: an index that waits for a pass that never comes."""
    graph = Graph()
    root = graph.thread()
    graph.append(root, [1, 2])
    (child,) = graph.fork(root)
    graph.append(child, [3])
    assert graph.match([1, 2, 3, 4]).cursor == child.cursor


def test_namespaces_do_not_meet() -> None:
    """Catches: an adapter taken for a salt of the same name; weights that have changed; a fork that forgets its own."""
    engine = ContentEngine(pages=40)
    graph = engine.graph
    spaces = [PLAIN, Namespace(adapter="x"), Namespace(salt="x"), Namespace(adapter="x", salt="x")]
    thread = engine.thread([1, 2], namespace=spaces[1])
    (child,) = graph.fork(thread)
    graph.append(child, [3])
    engine.compute(child)
    assert [graph.match([1, 2, 3], namespace=space).tokens for space in spaces] == [0, 3, 0, 0]
    graph.advance_weights()
    assert graph.match([1, 2, 3], namespace=spaces[1]).tokens == 0
    again, found = graph.thread_from([1, 2, 3], namespace=spaces[1])
    engine.compute(again)
    assert found.tokens == 0 and graph.match([1, 2, 3], namespace=spaces[1]).tokens == 3


def test_paths_with_mounts_are_not_found() -> None:
    """Catches: keys that carry what a mount showed, taken for those of the bare tokens."""
    engine = ContentEngine(pages=40)
    graph = engine.graph
    root, other = engine.thread([1, 2]), engine.thread([3])
    graph.read_thread(root, other)
    graph.append(root, [4])
    (child,) = graph.fork(root)
    graph.append(child, [5])
    engine.compute(child, other)
    assert graph.match([1, 2, 4, 5]).tokens == 2
    graph.drop(other)  # From here on only the mount holds it, and shows all of it.
    assert graph.match([3]).tokens == 1


def test_what_only_mounts_hold_is_found_only_whole() -> None:
    """Catches: a match that stands on pages that were given back, since a mount shows the end alone."""
    engine = ContentEngine(pages=40)
    graph = engine.graph
    reader, source = engine.thread([9]), engine.thread(list(range(20)))
    engine.compute(source)
    graph.read_thread(reader, source, last=2)
    assert graph.match(range(20)).tokens == 20
    graph.drop(source)
    assert graph.match(range(20)).tokens == 0
    graph.audit()


@pytest.mark.parametrize("kind", [np.asarray, list, tuple, lambda x: array("i", x.tolist()), np.int64, memoryview])
def test_tokens_may_come_in_any_form(kind) -> None:
    """Catches: an array of another width that is compared byte by byte."""
    graph = Graph()
    thread = graph.thread()
    graph.append(thread, range(100))
    tokens = np.arange(50, dtype=np.int32)
    made = tokens.astype(kind) if kind is np.int64 else kind(tokens)
    assert graph.match(made).tokens == 50
    assert graph.match(made[:0]).tokens == 0
    assert graph.match([0, 1, 1 << 40]).tokens == 0


def test_hashes_decide_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    """Catches: two texts taken for one since something that is computed of them is equal.

    The first token's bytes are the only key; here every first token is the same, as with a template.
    """
    graph = Graph()
    for number in range(300):
        thread = graph.thread()
        graph.append(thread, [0, number // 17, number % 17, number])
    for number in range(300):
        found = graph.match([0, number // 17, number % 17, number, 5])
        assert found.tokens == 4 and found.cursor is not None
        assert found.cursor.segment.tokens[3] == number
    assert graph.match([0, 3, 4, 99]).tokens == 3


def test_runs_that_nobody_needs_are_joined_again() -> None:
    """Catches: a tree that keeps every cut there ever was, so that look-ups grow with the past."""
    engine = ContentEngine(pages=400, rate=None)
    graph = engine.graph
    root = engine.thread([1] * 64)
    engine.compute(root)
    for length in range(1, 60):
        other = engine.thread([1] * length + [2])
        engine.compute(other)
        assert graph.match([1] * 64).tokens == 64
        graph.drop(other)
        graph.trim()
    roots: dict[Namespace, Node] = graph.retention.prefixes._roots
    assert sum(1 for _ in roots[PLAIN]) == 2  # The root, and one run of 64 tokens.
