"""What page stores are asked to do, and how it is timed, for ours and its rivals alike. Standard library only."""

from __future__ import annotations

import gc
import statistics
import time
from collections.abc import Callable, Iterable, Sequence
from typing import Any, NamedTuple

PAGES = 65_536
PAGE_SIZE = 16
PREFIX = 4_096  # Tokens of the cached prefix that is matched.
LEAVES = 10_000  # Cached leaves of one page each, of which one is evicted at a time.
BATCHES = 31  # A figure is the median of so many.

LINES = {
    "100-tokens": (100, 1),
    "10k-tokens": (10_000, 1),
    "10k-tokens-100-deep": (10_000, 100),
    "100k-tokens": (100_000, 1),
    "100k-tokens-1000-deep": (100_000, 1_000),
}
"""Tokens on a path, and in how many equal pieces, each one fork below the other."""

PATHS = {"1-segment": 1, "16-segments": 16}
"""In how many equal pieces the cached prefix was written."""

COUNTS = (1, 16, 256, 4_096)
"""Pages that are allocated and given back at once."""


class Figure(NamedTuple):
    """One measured value. `note` says which calls were timed and what they do and do not do."""

    case: str
    variant: str
    value: float
    note: str
    metric: str = "us"


def median_us(call: Callable[[Any], object], batches: Iterable[Sequence[Any]]) -> float:
    """Microseconds of one `call(item)`: the mean within a batch, the median over batches.

    It is this thread's own CPU time: every call is a plain computation in it, so on a quiet machine that is wall time,
    and on a busy one the others' share is left out. What the iterator does between two batches is not timed. The
    cyclic garbage collector is off meanwhile.
    """
    times = []
    gc.collect()
    gc.disable()
    try:
        for items in batches:
            start = time.thread_time_ns()
            for item in items:
                call(item)
            times.append((time.thread_time_ns() - start) / len(items) / 1000)
    finally:
        gc.enable()
    return statistics.median(times)


def same(item: object, size: int, batches: int | None = None) -> Iterable[Sequence[Any]]:
    """Batches of `size` times the same item; `BATCHES` of them if not said."""
    return ([item] * size for _ in range(BATCHES if batches is None else batches))


def gate(found: object, expected: object, what: str) -> None:
    """Raises ValueError unless `found` is `expected`: nothing is timed that does not work."""
    if found != expected:
        raise ValueError(f"{what}: expected {expected}, found {found}")
