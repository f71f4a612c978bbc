"""Shared pages: siblings that overwrite each other, in all the ways in which other stores let them."""

from __future__ import annotations

import random

import pytest
from small_store import SmallStore

from octopus.core.thread import Thread


def test_siblings_in_one_partial_page_do_not_meet() -> None:
    """Catches: a partial tail shared without a copy: all streams show the last writer's text (atlas 1193, vllm 417)."""
    store = SmallStore(16, 4)
    root = store.root(1, 2, 3, 4, 5, 6)
    children = store.graph.fork(root, 3)
    for number, child in enumerate(children):
        store.graph.append(child, [10 + number, 20 + number, 30 + number])
    store.engine.compute(children)
    store.write(root, 7)
    for number, child in enumerate(children):
        assert store.sees(child) == [1, 2, 3, 4, 5, 6, 10 + number, 20 + number, 30 + number]
    assert store.sees(root) == [1, 2, 3, 4, 5, 6, 7]
    store.drop_all()


def test_a_branch_inside_of_a_committed_page_leaves_it_alone() -> None:
    """Catches: a partial page rebased onto a shared one, which the next tokens overwrite (trtllm 12306)."""
    store = SmallStore(16, 8)
    a = store.root(*range(13))
    store.write(a, 13, 14, 15)
    (b,) = store.graph.fork(a)
    other, match = store.graph.thread_from([*range(12), 92])
    assert match.tokens == 12
    store.engine.compute([other])
    store.graph.commit(other, keep_running=True)
    store.write(other, 93, 94)
    assert store.sees(a) == store.sees(b) == list(range(16))
    assert store.sees(other) == [*range(12), 92, 93, 94]
    store.drop_all()


def test_a_page_is_not_reused_while_somebody_still_sees_it() -> None:
    """Catches: a duplicate freed while another's table points at it (mini-sglang PR 142; sglang 24226)."""
    store = SmallStore(8, 2)
    root = store.root(1, 2, 3, 4)
    reader = store.child(root, 9)
    sibling = store.child(root, 5, 6)
    store.graph.read_thread(reader, sibling)
    store.write(reader, 8)
    store.graph.drop(sibling)
    store.graph.drop(root)
    store.graph.trim()
    while store.pages.free:
        store.write(store.graph.thread(), 0)
    assert store.sees(reader) == [1, 2, 3, 4, 9, 5, 6, 8]
    store.drop_all()


@pytest.mark.parametrize("seed", range(5))
def test_running_together_changes_nobodys_view(seed: int) -> None:
    """Catches: requests that change each other's text (vllm 37076, 38606, 39146)."""

    def play(store: SmallStore, threads: list[Thread], *, shuffled: bool) -> list[list[int]]:
        work = [(number, token) for number in range(len(threads)) for token in range(5)]
        if shuffled:
            random.Random(seed).shuffle(work)
        written = [0] * len(threads)
        for number, _ in work:
            store.write(threads[number], 10 * number + written[number])
            written[number] += 1
        return [store.sees(thread) for thread in threads]

    alone, together = SmallStore(40, 4), SmallStore(40, 4)
    views = []
    for store, shuffled in ((alone, False), (together, True)):
        threads = store.graph.fork(store.root(1, 2, 3), 4)
        views.append(play(store, threads, shuffled=shuffled))
    assert views[0] == views[1]


def test_pages_that_lie_apart_serve_as_well() -> None:
    """Catches: enough free cells but no run of them (llama.cpp 3380, 9201)."""
    store = SmallStore(8, 2)
    threads = [store.root(n) for n in range(8)]
    for thread in threads[::2]:
        store.graph.drop(thread)
    store.graph.trim()
    wide = store.root(*range(8))
    assert store.sees(wide) == list(range(8))
    assert all(store.sees(thread) == [n] for n, thread in enumerate(threads) if n % 2)
    store.drop_all()
