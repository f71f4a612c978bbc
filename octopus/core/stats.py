"""Figures of a store: what there is now, and what has happened since it was built. Plain integers."""

from __future__ import annotations

from dataclasses import dataclass, fields
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from octopus.core.pool import Pool
    from octopus.core.retention import Retention


@dataclass(kw_only=True, slots=True)
class Counters:
    """What has happened; each only rises.

    Attributes:
        evicted_segments: Cached segments forgotten, with `evicted_pages` pages.
        evicted_states: Cached recurrent states given up, those of evicted segments not counted.
        offloads_started: Copies to the host tier begun; they end `_done` or `_failed`, with `pages_offloaded` pages.
        restores_started: Copies back begun; likewise.
        completions_ignored: Completions of copies that had been completed before.
        preempted_swapped: Threads whose private memory began to move to the host tier.
        preempted_recomputed: Threads whose private memory was dropped, to be computed again.
        evict_tried: How often that rung of the memory ladder was tried, `_helped` that it gave anything; so the others.
        refused: How often the ladder ended in a refusal.
        tokens_computed: Tokens whose KV was published.
        tokens_recomputed: Those of them that had been computed before.
        match_calls: Prefix look-ups, which found `match_tokens` tokens.
        seals_checked: Pages and states compared with their fingerprints; `seals_broken` did not agree.
        oom_retries: Passes that ran out of device memory and were tried again.
        oom_refused: Those that were given up.
    """

    evicted_segments: int = 0
    evicted_pages: int = 0
    evicted_states: int = 0
    offloads_started: int = 0
    offloads_done: int = 0
    offloads_failed: int = 0
    pages_offloaded: int = 0
    restores_started: int = 0
    restores_done: int = 0
    restores_failed: int = 0
    pages_restored: int = 0
    completions_ignored: int = 0
    preempted_swapped: int = 0
    preempted_recomputed: int = 0
    evict_tried: int = 0
    evict_helped: int = 0
    offload_tried: int = 0
    offload_helped: int = 0
    preempt_tried: int = 0
    preempt_helped: int = 0
    refused: int = 0
    tokens_computed: int = 0
    tokens_recomputed: int = 0
    match_calls: int = 0
    match_tokens: int = 0
    seals_checked: int = 0
    seals_broken: int = 0
    oom_retries: int = 0
    oom_refused: int = 0


@dataclass(frozen=True, kw_only=True, slots=True)
class PoolStats:
    """One pool: `capacity == free + fenced + used`."""

    capacity: int = 0
    free: int = 0
    fenced: int = 0
    used: int = 0

    @classmethod
    def of(cls, pool: Pool | None) -> PoolStats:
        """The figures of `pool`; all 0 where there is none."""
        if pool is None:
            return cls()
        return cls(capacity=pool.capacity, free=pool.free, fenced=pool.fenced, used=pool.used)


@dataclass(frozen=True, kw_only=True, slots=True)
class StoreStats:
    """A store at one moment.

    Attributes:
        pages: The pool of KV pages.
        states: The pool of recurrent-state slots.
        host_pages: The host tier's pages.
        host_states: The host tier's states.
        pages_cached: Device pages of segments on which nobody stands: free as soon as somebody needs them.
        states_idle: States that are cache.
        transfers: Copies under way, with `pages_in_transfer` pages.
        segments: Segments, of which `segments_cached` are cache.
        threads: Threads that have not been dropped.
        counters: What has happened so far.
    """

    pages: PoolStats
    states: PoolStats
    host_pages: PoolStats
    host_states: PoolStats
    pages_cached: int
    states_idle: int
    transfers: int
    pages_in_transfer: int
    segments: int
    segments_cached: int
    threads: int
    counters: Counters

    def flat(self) -> dict[str, int]:
        """Every figure by name, as `pages_free` or `evicted_pages`: for metrics."""
        figures: dict[str, int] = {}
        for field in fields(self):
            value = getattr(self, field.name)
            if isinstance(value, int):
                figures[field.name] = value
                continue
            prefix = "" if isinstance(value, Counters) else f"{field.name}_"
            figures |= {prefix + part.name: getattr(value, part.name) for part in fields(value)}
        return figures


def stats_of(retention: Retention) -> StoreStats:
    """The figures of a store. O(cached segments)."""
    host, transfers = retention.swapping.host, retention.swapping.moving.values()
    cached = retention.cached
    counters = retention.counters
    return StoreStats(
        pages=PoolStats.of(retention.pages),
        states=PoolStats.of(retention.states),
        host_pages=PoolStats.of(host.pages if host else None),
        host_states=PoolStats.of(host.states if host else None),
        pages_cached=sum(sum(handle >= 0 for handle in segment.pages) for segment in cached),
        states_idle=retention.checkpoints.idle,
        transfers=len(transfers),
        pages_in_transfer=sum(len(transfer.pages) for transfer in transfers),
        segments=len(retention.segments),
        segments_cached=len(cached),
        threads=len(retention.threads),
        counters=Counters(**{field.name: getattr(counters, field.name) for field in fields(Counters)}),
    )
