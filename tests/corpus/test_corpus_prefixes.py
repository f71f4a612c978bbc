"""Wrong hits and contamination through a prefix index: kinds of faults that other stores had, inputs of our own."""

from __future__ import annotations

import random
from array import array

import pytest
from small_store import SmallStore

from octopus.core.errors import NotComputed
from octopus.core.namespace import Namespace


def shared(one: list[int], other: list[int]) -> int:
    """How many leading tokens both have in common."""
    return len([1 for length in range(min(len(one), len(other))) if one[: length + 1] == other[: length + 1]])


def test_a_page_that_was_given_to_others_is_not_found_again() -> None:
    """Catches: a table that names a block after it was reallocated (nano-vllm 163)."""
    store = SmallStore(1, 4)
    first = store.root(1, 2, 3)
    store.graph.drop(first)
    second = store.root(5, 6, 7)
    assert store.graph.match([1, 2, 3]).tokens == 0
    assert store.graph.match([5, 6, 7]).tokens == 3
    assert store.sees(second) == [5, 6, 7]


def test_adapter_and_salt_are_two_things() -> None:
    """Catches: one tenant's salt that equals another's adapter name (vllm 44701)."""
    store = SmallStore(8, 2)
    store.root(1, 2, namespace=Namespace(adapter="x"))
    assert store.graph.match([1, 2], namespace=Namespace(salt="x")).tokens == 0
    assert store.graph.match([1, 2]).tokens == 0
    assert store.graph.match([1, 2], namespace=Namespace(adapter="x")).tokens == 2


def test_same_salt_hits_and_another_misses() -> None:
    """Catches: a tier or child that forgets the salt, content behind equal token ids (LMCache 2880; trtllm 12306)."""
    store = SmallStore(8, 2, host=8)
    theirs, ours = Namespace(salt="theirs"), Namespace(salt="ours")
    thread = store.child(store.root(1, 2, namespace=theirs), 3)
    store.commit(thread)
    store.graph.offload(thread)
    assert store.graph.match([1, 2, 3], namespace=ours).tokens == 0
    assert store.graph.match([1, 2, 3], namespace=theirs).equal == 3


@pytest.mark.parametrize("other", [[1, 2, 4], [1, 3, 2], [0, 2, 3], [1, 2], [1, 2, 3 + 2**16]])
def test_only_equal_tokens_match(other: list[int]) -> None:
    """Catches: a hash, or a part of a token, taken for the token (vllm GHSA-rm76-4mrf-v9r8, openvino.genai 3722)."""
    store = SmallStore(8, 2)
    store.root(1, 2, 3)
    for asked in (other, array("i", other)):
        assert store.graph.match(asked).tokens == shared(other, [1, 2, 3])


def test_new_weights_find_nothing_that_old_ones_wrote() -> None:
    """Catches: KV of old weights that is found after an update (vllm 9744, lmdeploy 4917, SkyRL 1824)."""
    store = SmallStore(8, 2)
    old = store.root(1, 2, 3)
    store.graph.advance_weights()
    assert store.graph.match([1, 2, 3]).tokens == 0
    new, match = store.graph.thread_from([1, 2, 3])
    assert match.tokens == 0
    store.engine.compute([new])
    assert store.sees(new) == [1, 2, 3] and store.graph.match([1, 2, 3]).tokens == 3
    store.graph.drop(old)
    store.drop_all()


def test_nothing_is_found_before_it_is_computed() -> None:
    """Catches: a block that can be found before its data is written (vllm PR 37152)."""
    store = SmallStore(8, 2)
    thread = store.graph.thread()
    store.graph.append(thread, [1, 2, 3])
    assert store.graph.match([1, 2, 3]).tokens == 0
    store.engine.open([thread])
    assert store.graph.match([1, 2, 3]).tokens == 0
    store.engine.advance()
    store.engine.close()
    assert store.graph.match([1, 2, 3]).tokens == 3


def test_what_was_cancelled_in_the_middle_is_found_only_as_far_as_it_got() -> None:
    """Catches: a chunk published mid-way and freed while the index keeps it (sglang PR 38355; trtllm 15018)."""
    store = SmallStore(8, 2)
    thread = store.graph.thread()
    store.graph.append(thread, list(range(12)))
    store.engine.open([thread])
    store.engine.advance()
    store.graph.cancel(thread)
    store.engine.close()
    store.graph.drop(thread)
    match = store.graph.match(list(range(12)))
    assert match.tokens <= 6
    again, _ = store.graph.thread_from(list(range(12)))
    store.engine.compute([again])
    assert store.sees(again) == list(range(12))
    store.drop_all()


def test_no_phantom_hits_under_churn() -> None:
    """Catches: an entry that survives the eviction of everything (local-inference-lab/vllm 480)."""
    rng = random.Random(0)
    store = SmallStore(2, 2)
    alive: list[int] = []
    for _ in range(300):
        tokens = [rng.randrange(3) for _ in range(rng.randint(1, 4))]
        found = store.graph.match(tokens).tokens
        assert found == shared(tokens, alive), (tokens, alive)
        thread = store.root(*tokens)
        store.graph.drop(thread)
        store.graph.trim()
        assert store.graph.match(tokens).tokens == 0
        alive = []
        if rng.random() < 0.5:
            store.graph.drop(store.root(*tokens))
            alive = tokens
        while alive and rng.random() < 0.3:
            assert store.graph.evict()
            alive = []
    store.expect_empty()


def test_two_that_write_the_same_in_one_step_are_two() -> None:
    """Catches: twins with two pages and one entry; the first that goes takes the other's page (nano-vllm 219)."""
    store = SmallStore(8, 2)
    graph = store.graph
    one, other = graph.thread(), graph.thread()
    for thread in (one, other):
        graph.append(thread, [1, 2, 3])
    store.engine.compute([one, other])
    graph.drop(one)
    graph.trim()
    assert store.sees(other) == [1, 2, 3] and graph.match([1, 2, 3]).tokens == 3
    graph.drop(other)
    store.expect_empty()


def test_branching_inside_of_a_page_is_found_on_both_sides() -> None:
    """Catches: a split node filed under the wrong key (sglang PR 36696; mllm PR 656)."""
    store = SmallStore(12, 2)
    store.graph.drop(store.root(1, 2, 3, 4))
    store.graph.drop(store.root(1, 2, 9, 9))
    store.graph.drop(store.root(1, 5))
    for tokens, length in (([1, 2, 3, 4], 4), ([1, 2, 9, 9], 4), ([1, 2, 9, 3], 3), ([1, 5, 1], 2), ([2], 0)):
        assert store.graph.match(tokens).tokens == length
    store.expect_empty()
    assert store.graph.match([1, 2, 3, 4]).tokens == 0


def test_commit_before_compute_is_refused() -> None:
    """Catches: a snapshot taken before its step has finished (sglang 24221)."""
    store = SmallStore(8, 2)
    thread = store.graph.thread()
    store.graph.append(thread, [1])
    store.engine.open([thread])
    with pytest.raises(NotComputed):
        store.graph.commit(thread)
    store.engine.advance()
    store.engine.close()
    assert store.graph.commit(thread).version == 1


def test_what_stands_below_a_mount_is_not_found() -> None:
    """Catches: a look-up that breaks on a line of which what precedes it cannot be found."""
    store = SmallStore(16, 2)
    root = store.root(1)
    reader, source = store.child(root, 2), store.child(root, 7)
    store.graph.read_thread(reader, source)
    store.write(reader, 3)
    below = store.child(reader, 4)
    assert store.graph.match([1, 2, 3, 4]).tokens == 2
    assert store.sees(below) == [1, 2, 7, 3, 4]
    store.drop_all()


def test_a_token_that_no_buffer_holds_is_not_found() -> None:
    """Catches: a look-up that breaks on a token of more than 32 bits, or finds what begins like it."""
    store = SmallStore(16, 2)
    thread = store.root(1, 2**40)
    assert store.graph.match([1, 2**40]).tokens == 0
    assert store.graph.match([1, 0]).tokens == 0
    assert store.sees(thread) == [1, 2**40]
    store.drop_all()


def test_a_line_computed_again_is_found_where_it_was() -> None:
    """Catches: a line filed anew, behind its equals, although nothing has changed since anybody looked."""
    store = SmallStore(16, 2)
    first, _ = store.root(1, 2, 3), store.root(1, 2, 3)
    place = first.cursor.segment
    assert store.graph.match([1, 2, 3]).cursor == (place, 3)
    assert store.graph.preempt(first) == 2
    store.engine.compute([first])
    assert store.graph.match([1, 2, 3]).cursor == (place, 3)
