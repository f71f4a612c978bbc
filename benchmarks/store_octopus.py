"""Octopus' own figures: a graph with 65,536 pages of 16 tokens, tracing on, its steps published as an engine would."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

import numpy as np
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

from octopus.core.graph import Graph
from octopus.core.limits import Limits
from octopus.core.pool import PagePool
from octopus.core.thread import Thread
from octopus.core.trace import Trace

VARIANT = "octopus"
LIMITS = Limits(fan_out=1_024, depth=1_024)
READ = 2_048  # Tokens of the sibling that is read.
THREADS = 64  # Of one decode step.


def new_graph() -> Graph:
    return Graph(pages=PagePool(PAGES, page_size=PAGE_SIZE), limits=LIMITS, trace=Trace())


def compute(graph: Graph, threads: Sequence[Thread]) -> None:
    """Everything that `threads` lack, in one step; where an engine would run the model, nothing happens."""
    with graph.begin_step(threads, chunk_tokens=PAGES * PAGE_SIZE) as step:
        for wave in step.waves:
            for stretch in wave:
                step.publish(stretch)


def new_line(graph: Graph, tokens: Sequence[int], pieces: int) -> Thread:
    """A thread at the end of `tokens`, written in `pieces` equal segments, each a fork below the other; computed."""
    thread, step = graph.thread(), len(tokens) // pieces
    graph.append(thread, tokens[:step])
    for start in range(step, step * pieces, step):
        (thread,) = graph.fork(thread)
        graph.append(thread, tokens[start : start + step])
    compute(graph, [thread])
    return thread


def drop(graph: Graph, threads: Iterable[Thread]) -> None:
    """Drops threads, and evicts what they leave."""
    for thread in threads:
        graph.drop(thread)
    graph.trim()


def fork(line: str) -> Figure:
    graph, (tokens, depth) = new_graph(), LINES[line]
    thread = new_line(graph, range(tokens), depth)
    gate(thread.depth, depth - 1, "forks above the thread")

    def batches() -> Iterator[list[Thread]]:
        for _ in range(BATCHES):
            yield [thread] * 100
            children = list(thread.children.values())
            gate({child.cursor for child in children}, {thread.cursor}, "places of the children")
            drop(graph, children)

    value = median_us(graph.fork, batches())
    graph.audit()
    return Figure(f"fork/{line}", VARIANT, value, "fork")


def mount(line: str) -> Figure:
    graph, (tokens, depth) = new_graph(), LINES[line]
    thread = new_line(graph, range(tokens), depth)
    (source,) = graph.fork(thread)
    graph.append(source, range(READ))
    compute(graph, [source])

    def batches() -> Iterator[list[Thread]]:
        for _ in range(BATCHES):
            readers = graph.fork(thread, 100)
            yield readers
            gate(
                {reader.cursor.next_position for reader in readers},
                {thread.cursor.next_position + READ},
                "positions",
            )
            drop(graph, readers)

    value = median_us(lambda reader: graph.read_thread(reader, source), batches())
    graph.audit()
    note = f"read_thread of a sibling's {READ} tokens, which lie beside the reader's path"
    return Figure(f"mount/{line}", VARIANT, value, note)


def append() -> Figure:
    graph = new_graph()
    thread = new_line(graph, range(PAGE_SIZE), 1)
    one = [7]
    value = median_us(lambda thread: graph.append(thread, one), same(thread, 200))
    gate(thread.own_tokens, PAGE_SIZE + BATCHES * 200, "tokens of the thread")
    return Figure(
        "append", VARIANT, value, "append of one token; its page is reserved by the step that computes it"
    )


def decode() -> Figure:
    graph, one = new_graph(), [7]
    threads = graph.fork(new_line(graph, range(PAGE_SIZE), 1), THREADS)

    def step(_: None) -> None:
        for thread in threads:
            graph.append(thread, one)
        compute(graph, threads)

    step(None)
    value = median_us(step, same(None, 8)) / THREADS
    gate(threads[0].cursor.segment.computed, 1 + BATCHES * 8, "tokens computed")
    note = f"append to {THREADS} threads, begin_step, publish; per thread"
    return Figure(f"append/decode-{THREADS}", VARIANT, value, note)


def allocation() -> Iterator[Figure]:
    pool = new_graph().retention.pages
    assert pool is not None
    for pages in COUNTS:
        batches = same(pages, max(4, 4_096 // pages))
        value = median_us(lambda n: pool.release(pool.allocate(n)), batches) / pages
        note = "allocate, release; generations, double frees and units twice in one release are checked"
        yield Figure(f"alloc-free/{pages}", VARIANT, value, note, "us_per_page")
    gate(pool.free, PAGES, "free pages afterwards")


def prefix(path: str) -> Figure:
    graph, pieces = new_graph(), PATHS[path]
    new_line(graph, range(PREFIX), pieces)
    for thread in graph.threads:
        graph.drop(thread)
    asked = np.arange(PREFIX, dtype=np.int32)
    gate((graph.match(asked).tokens, len(graph.segments)), (PREFIX, pieces), "tokens matched, and segments")
    value = median_us(graph.match, same(asked, 16))
    graph.audit()
    note = "match of an int32 array; every token is compared; nobody stands on the cached path"
    return Figure(f"match-4096/{path}", VARIANT, value, note)


def eviction() -> Figure:
    graph, each = new_graph(), 8
    count = LEAVES + BATCHES * each // 2
    root = new_line(graph, range(PAGE_SIZE), 1)
    for start in range(0, count, 1_000):
        leaves = graph.fork(root, min(1_000, count - start))
        for leaf in leaves:
            graph.append(leaf, [leaf.id] * PAGE_SIZE)
        compute(graph, leaves)
        for leaf in leaves:
            graph.drop(leaf)
    value = median_us(lambda _: graph.evict(), same(None, each))
    gate(graph.stats().segments_cached, count - BATCHES * each, "leaves that are left")
    graph.audit()
    return Figure(
        "evict-1-of-10000", VARIANT, value, "evict: the least recently left leaf, its page and its hold"
    )


def audits() -> Iterator[Figure]:
    """Two full pools: one segment, and 10,000 segments. A page costs what the first says, a segment the rest."""
    long = new_graph()
    pages = PAGES - PAGES % LEAVES
    new_line(long, range(pages * PAGE_SIZE), 1)
    page_us = median_us(lambda _: long.audit(), same(None, 1, 7)) / pages
    yield Figure("audit", VARIANT, page_us, f"audit of 1 segment with {pages} pages", "us_per_page")
    wide = new_graph()
    root, each = wide.thread(), pages // LEAVES
    for _ in range(LEAVES // 1_000):
        leaves = wide.fork(root, 1_000)
        for leaf in leaves:
            wide.append(leaf, range(each * PAGE_SIZE))
        compute(wide, leaves)
    gate(wide.stats().pages.used, pages, "pages in use")
    total_us = median_us(lambda _: wide.audit(), same(None, 1, 7))
    value = (total_us - page_us * pages) / LEAVES
    note = f"audit of {LEAVES} segments and threads with {pages} pages, less the pages"
    yield Figure("audit", VARIANT, value, note, "us_per_segment")


def figures() -> Iterator[Figure]:
    for line in LINES:
        yield fork(line)
        yield mount(line)
    yield append()
    yield decode()
    yield from allocation()
    for path in PATHS:
        yield prefix(path)
    yield eviction()
    yield from audits()
