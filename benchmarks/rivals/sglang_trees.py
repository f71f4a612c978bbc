"""SGLang's prefix trees, RadixCache in Python and the unified tree with its Rust core, over its paged allocator."""

from __future__ import annotations

from array import array
from collections.abc import Iterator
from typing import Any

import torch
from sglang.srt.mem_cache.allocator import PagedTokenToKVPoolAllocator
from sglang.srt.mem_cache.base_prefix_cache import EvictParams, InsertParams, MatchPrefixParams
from sglang.srt.mem_cache.cache_init_params import CacheInitParams
from sglang.srt.mem_cache.radix_cache import RadixCache, RadixKey
from sglang.srt.mem_cache.unified_cache.component_type import ComponentType
from sglang.srt.mem_cache.unified_radix_cache import UnifiedRadixCache
from store_cases import (
    BATCHES,
    COUNTS,
    LEAVES,
    LINES,
    PAGE_SIZE,
    PAGES,
    PATHS,
    PREFIX,
    Figure,
    gate,
    median_us,
    same,
)

PACKAGE = "sglang"
ALLOCATOR, PYTHON, RUST = "sglang-allocator", "sglang-RadixCache", "sglang-Rust"
THREADS = 64  # Of one decode step.


def new_allocator() -> PagedTokenToKVPoolAllocator:
    return PagedTokenToKVPoolAllocator(PAGES * PAGE_SIZE, PAGE_SIZE, torch.bfloat16, "cpu", None, False)


def new_tree(variant: str) -> Any:
    """An empty tree over an allocator of its own."""
    common = {
        "disable": False,
        "req_to_token_pool": None,
        "token_to_kv_pool_allocator": new_allocator(),
        "page_size": PAGE_SIZE,
    }
    if variant == PYTHON:
        return RadixCache(CacheInitParams(**common))
    params = CacheInitParams(**common, tree_components=(ComponentType.FULL,), tree_core_backend="rust")
    tree = UnifiedRadixCache(params)
    gate(
        type(tree.tree_core).__name__, "RustUnifiedTreeCore", "core of the tree"
    )  # It falls back in silence.
    return tree


def insert(tree: Any, tokens: array[int], pieces: int) -> None:
    """Caches `tokens` as a path of `pieces` nodes, in whole pages: a match that ends within a node splits it there."""
    step = len(tokens) // pieces // PAGE_SIZE * PAGE_SIZE
    slots = tree.token_to_kv_pool_allocator.alloc(step * pieces)
    tree.insert(InsertParams(key=RadixKey(tokens[: step * pieces]), value=slots))
    for end in range(step * (pieces - 1), 0, -step):
        match(tree, tokens[:end])


def match(tree: Any, tokens: array[int]) -> Any:
    return tree.match_prefix(MatchPrefixParams(key=RadixKey(tokens)))


def allocation() -> Iterator[Figure]:
    allocator = new_allocator()
    for pages in COUNTS:
        size = max(4, 64 // pages)
        value = median_us(lambda n: allocator.free(allocator.alloc(n * PAGE_SIZE)), same(pages, size)) / pages
        yield Figure(
            f"alloc-free/{pages}", ALLOCATOR, value, "alloc, free of tensors of slots", "us_per_page"
        )
    gate(allocator.available_size(), PAGES * PAGE_SIZE, "free slots afterwards")


def appends(case: str, threads: int) -> Figure:
    """A decode step of so many threads: one slot for each. Per thread."""
    allocator = new_allocator()
    last = torch.stack([allocator.alloc(PAGE_SIZE)[-1] for _ in range(threads)])
    lengths = torch.full((threads,), PAGE_SIZE)

    def step(_: None) -> None:
        lengths.add_(1)
        last.copy_(allocator.alloc_decode(lengths, lengths, last))

    value = median_us(step, same(None, 32)) / threads
    used = PAGES - allocator.available_size() // PAGE_SIZE
    gate(used, threads * (1 + BATCHES * 32 // PAGE_SIZE), "pages used")
    note = f"alloc_decode of {threads} threads, per thread; the token itself is kept elsewhere"
    return Figure(case, ALLOCATOR, value, note)


def fork(line: str, variant: str) -> Figure:
    tokens, depth = LINES[line]
    tree, prompt = new_tree(variant), array("q", range(tokens))
    insert(tree, prompt, depth)
    kept = tokens // depth // PAGE_SIZE * PAGE_SIZE * depth
    found = match(tree, prompt)
    gate(
        (found.device_prefix_len, len(tree.path_device_indices(found.last_device_node))),
        (kept, kept),
        "match",
    )
    locks: list[Any] = []

    def second_request(prompt: array[int]) -> None:
        node = match(tree, prompt).last_device_node
        locks.append(tree.lock(node))
        tree.path_device_indices(node)

    def batches() -> Iterator[list[array[int]]]:
        for _ in range(BATCHES):
            yield [prompt] * 4
            while locks:
                tree.unlock(locks.pop())

    note = "a second request of the same tokens: match_prefix, lock, path_device_indices"
    return Figure(f"fork/{line}", variant, median_us(second_request, batches()), note)


def prefix(path: str, variant: str) -> Figure:
    tree, prompt = new_tree(variant), array("q", range(PREFIX))
    insert(tree, prompt, PATHS[path])
    asked = array("q", prompt)
    gate(match(tree, asked).device_prefix_len, PREFIX, "tokens matched")
    value = median_us(lambda asked: match(tree, asked), same(asked, 16))
    note = "match_prefix of an int64 array, whole pages, without a lock and without the slots"
    return Figure(f"match-4096/{path}", variant, value, note)


def eviction(variant: str) -> Figure:
    tree, each = new_tree(variant), 4
    count = LEAVES + BATCHES * each // 2
    for leaf in range(count):
        insert(tree, array("q", [leaf] * PAGE_SIZE), 1)
    value = median_us(lambda tokens: tree.evict(EvictParams(num_tokens=tokens)), same(PAGE_SIZE, each))
    gate(tree.evictable_size(), (count - BATCHES * each) * PAGE_SIZE, "tokens that are left")
    return Figure("evict-1-of-10000", variant, value, "evict(num_tokens=16): the least recently used leaf")


def figures() -> Iterator[Figure]:
    """There is no reading of a sibling: no figure for that."""
    yield from allocation()
    yield appends("append", 1)
    yield appends(f"append/decode-{THREADS}", THREADS)
    for variant in (PYTHON, RUST):
        for line in LINES:
            yield fork(line, variant)
        for path in PATHS:
            yield prefix(path, variant)
        yield eviction(variant)
