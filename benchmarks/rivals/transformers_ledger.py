"""transformers' continuous batching: its allocator for full attention with BlockLedger and CachePool."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import count

import torch
from store_cases import BATCHES, COUNTS, LINES, PAGE_SIZE, PAGES, PATHS, PREFIX, Figure, gate, median_us, same
from transformers import LlamaConfig
from transformers.generation.continuous_batching.cache_allocators.cache_pool import CachePool
from transformers.generation.continuous_batching.cache_allocators.full_attention import (
    FullAttentionCacheAllocator,
)

PACKAGE = "transformers"
LEDGER, POOL = "transformers-BlockLedger", "transformers-CachePool"
BLOCKS_PER_SECTOR = 64  # With 1 and with 65,536 its pool is slower.


def allocator() -> FullAttentionCacheAllocator:
    """An allocator of one tiny layer, all of whose sectors it has been given."""
    config = LlamaConfig(hidden_size=64, num_attention_heads=8, num_key_value_heads=1, num_hidden_layers=1)
    made = FullAttentionCacheAllocator(0, config, 1, torch.bfloat16, PAGE_SIZE, [0], True)
    sectors, sector_bytes = PAGES // BLOCKS_PER_SECTOR, made.bytes_per_block * BLOCKS_PER_SECTOR
    pool = CachePool(sectors, 1)
    memory = torch.zeros((sectors + 2) * sector_bytes, dtype=torch.uint8)
    made.register_cache_tensor(sector_bytes, sectors * sector_bytes, memory, pool)
    for _ in range(sectors):
        pool.allocate_sector(0)
    gate(pool.count_free_blocks(0), PAGES, "free blocks")
    return made


def allocation(store: FullAttentionCacheAllocator) -> Iterator[Figure]:
    def through_ledger(pages: int) -> None:
        store.allocate_cache_to_request("request", 0, pages * PAGE_SIZE)
        store.free_blocks("request")

    def pool_only(pages: int) -> None:
        store.pool.free_blocks(0, store.pool.get_free_blocks(0, pages))

    for pages in COUNTS:
        size = max(4, 4096 // pages)
        value = median_us(through_ledger, same(pages, size)) / pages
        note = "allocate_cache_to_request, free_blocks; counts, no double-free check"
        yield Figure(f"alloc-free/{pages}", LEDGER, value, note, "us_per_page")
        value = median_us(pool_only, same(pages, size)) / pages
        note = "get_free_blocks, free_blocks; a list, no checks"
        yield Figure(f"alloc-free/{pages}", POOL, value, note, "us_per_page")
    gate(store.pool.count_free_blocks(0), PAGES, "free blocks afterwards")


def fork(line: str, store: FullAttentionCacheAllocator) -> Figure:
    tokens, _ = LINES[line]
    store.allocate_cache_to_request("parent", 0, tokens)
    names = count()

    def batches() -> Iterator[list[int]]:
        for _ in range(BATCHES):
            children = [next(names) for _ in range(8)]
            yield children
            gate(len(store.block_table[children[0]]), -(-tokens // PAGE_SIZE), "blocks of a child")
            for child in children:
                store.free_blocks(child)

    value = median_us(lambda name: store.fork_blocks("parent", name, tokens), batches())
    note = "fork_blocks: counts every full block up, copies the table; the partial block's copy is not timed"
    return Figure(f"fork/{line}", LEDGER, value, note)


def appends(store: FullAttentionCacheAllocator) -> Figure:
    lengths = count()

    def append(_: None) -> None:
        store.allocate_cache_to_request("request", next(lengths), 1)

    value = median_us(append, same(None, 200))
    gate(len(store.block_table["request"]), -(-BATCHES * 200 // PAGE_SIZE), "blocks of the request")
    store.free_blocks("request")
    return Figure(
        "append", LEDGER, value, "allocate_cache_to_request of one token; the token itself is kept elsewhere"
    )


def matches(store: FullAttentionCacheAllocator) -> Iterator[Figure]:
    tokens = list(range(PREFIX + 1))
    store.allocate_cache_to_request("cached", 0, len(tokens))
    store.mark_complete_blocks("cached", tokens, PREFIX // PAGE_SIZE)
    store.free_blocks("cached")
    gate(len(store.match_prefix_blocks(tokens)) * PAGE_SIZE, PREFIX, "tokens matched")
    value = median_us(store.match_prefix_blocks, same(tokens, 8))
    for path in PATHS:
        note = "match_prefix_blocks of a list: hashes every block; tokens are not compared; no tree"
        yield Figure(f"match-4096/{path}", LEDGER, value, note)


def figures() -> Iterator[Figure]:
    """Its eviction gives up everything at once, and there is no reading of a sibling: no figures for those."""
    yield from allocation(allocator())
    for line, (_, depth) in LINES.items():
        if depth == 1:  # It has no tree: a request is one table, however it came about.
            yield fork(line, allocator())
    yield appends(allocator())
    yield from matches(allocator())
