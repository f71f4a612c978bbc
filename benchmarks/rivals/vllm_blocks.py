"""vLLM's BlockPool, and its KVCacheManager over one group of full attention."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import count

import torch
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
from vllm.sampling_params import SamplingParams
from vllm.utils.hashing import sha256
from vllm.v1.core.block_pool import BlockPool
from vllm.v1.core.kv_cache_manager import KVCacheManager
from vllm.v1.core.kv_cache_utils import get_request_block_hasher, init_none_hash
from vllm.v1.kv_cache_interface import FullAttentionSpec, KVCacheConfig, KVCacheGroupSpec
from vllm.v1.request import Request

PACKAGE = "vllm"
POOL, MANAGER = "vllm-BlockPool", "vllm-KVCacheManager"
LIMIT = PAGES * PAGE_SIZE
SAMPLING = SamplingParams(max_tokens=LIMIT)

init_none_hash(sha256)
HASHER = get_request_block_hasher(PAGE_SIZE, sha256)
NAMES = count()


def new_manager() -> KVCacheManager:
    spec = FullAttentionSpec(block_size=PAGE_SIZE, num_kv_heads=2, head_size=64, dtype=torch.bfloat16)
    config = KVCacheConfig(
        num_blocks=PAGES, kv_cache_tensors=[], kv_cache_groups=[KVCacheGroupSpec(["layer"], spec)]
    )
    return KVCacheManager(
        config, max_model_len=LIMIT, scheduler_block_size=PAGE_SIZE, hash_block_size=PAGE_SIZE
    )


def new_request(tokens: list[int]) -> Request:
    """A request with its blocks hashed, which is how vLLM is asked for a prefix."""
    return Request(
        request_id=str(next(NAMES)),
        prompt_token_ids=tokens,
        sampling_params=SAMPLING,
        pooling_params=None,
        block_hasher=HASHER,
    )


def admit(manager: KVCacheManager, tokens: list[int]) -> Request:
    """A request that has found what is cached and owns blocks for all its tokens."""
    request = new_request(tokens)
    blocks, cached, _ = manager.get_computed_blocks(request)
    gate(
        manager.allocate_slots(request, len(tokens) - cached, cached, blocks) is None, False, "no blocks left"
    )
    request.num_computed_tokens = len(tokens)
    return request


def allocation() -> Iterator[Figure]:
    pool = BlockPool(PAGES, True, PAGE_SIZE)
    free = pool.get_num_free_blocks()
    for pages in COUNTS:
        batches = same(pages, max(4, 4096 // pages))
        value = median_us(lambda n: pool.free_blocks(pool.get_new_blocks(n)), batches) / pages
        yield Figure(
            f"alloc-free/{pages}", POOL, value, "get_new_blocks, free_blocks; asserts counts", "us_per_page"
        )
    gate(pool.get_num_free_blocks(), free, "free blocks afterwards")


def fork(line: str) -> Figure:
    manager, prompt = new_manager(), list(range(LINES[line][0]))
    admit(manager, prompt)
    children: list[Request] = []

    def batches() -> Iterator[list[list[int]]]:
        for _ in range(BATCHES):
            yield [prompt] * 2
            gate(children[0].num_computed_tokens, len(prompt), "tokens of a child")
            while children:
                manager.free(children.pop())

    value = median_us(lambda prompt: children.append(admit(manager, prompt)), batches())
    return Figure(
        f"fork/{line}", MANAGER, value, "Request, get_computed_blocks, allocate_slots, as for n > 1"
    )


def appends() -> Figure:
    manager = new_manager()
    request = admit(manager, list(range(PAGE_SIZE)))

    def append(token: int) -> None:
        request.append_output_token_ids(token)
        manager.allocate_slots(request, 1)
        request.num_computed_tokens += 1

    value = median_us(append, same(7, 200))
    blocks = len(manager.get_block_ids(request.request_id)[0])
    gate(blocks, 1 + -(-BATCHES * 200 // PAGE_SIZE), "blocks of the request")
    return Figure("append", MANAGER, value, "append_output_token_ids, allocate_slots of one token")


def matches() -> Iterator[Figure]:
    manager, tokens = new_manager(), list(range(PREFIX + 1))  # It never reuses a request's last token.
    manager.free(admit(manager, tokens))
    hashed = new_request(tokens)
    gate(manager.get_computed_blocks(hashed)[1], PREFIX, "tokens matched")
    value = median_us(lambda tokens: manager.get_computed_blocks(new_request(tokens)), same(tokens, 8))
    again = median_us(manager.get_computed_blocks, same(hashed, 8))
    for path in PATHS:
        note = "Request (hashes every block), get_computed_blocks; tokens are not compared; no tree"
        yield Figure(f"match-4096/{path}", MANAGER, value, note)
        yield Figure(
            f"match-4096/{path}", f"{MANAGER}-hashed", again, "get_computed_blocks of a request hashed before"
        )


def eviction() -> Figure:
    manager, each = new_manager(), 8
    pool = manager.block_pool
    leaves = [admit(manager, [leaf] * PAGE_SIZE) for leaf in range(LEAVES + BATCHES * each // 2)]
    pool.get_new_blocks(pool.get_num_free_blocks())
    for leaf in leaves:
        manager.free(leaf)
    value = median_us(pool.get_new_blocks, same(1, each))
    gate(len(pool.cached_block_hash_to_block), len(leaves) - BATCHES * each, "leaves that are left")
    note = "get_new_blocks(1) when all free blocks are cached: evicts the least recently used and takes it"
    return Figure("evict-1-of-10000", MANAGER, value, note)


def figures() -> Iterator[Figure]:
    """There is no reading of a sibling: no figure for that."""
    yield from allocation()
    for line, (_, depth) in LINES.items():
        if depth == 1:  # It has no tree: a request is one table, however it came about.
            yield fork(line)
    yield appends()
    yield from matches()
    yield eviction()
