"""A run as Prometheus scrapes it. Everything is computed when it is asked for; labels are closed sets.

Gauges come from the store itself, not from what a step left behind, so that they fall when memory is given back.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping
from typing import get_args

from prometheus_client import CollectorRegistry
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from octopus import __version__
from octopus.core.stats import PoolStats, StoreStats
from octopus.rollout.play import Outcome
from octopus.train.service.observed import Observed
from octopus.train.watching import Phase

PRIMITIVES = ("fork", "read_thread", "wait_threads", "rewind", "commit")
STAGES = ("imitation", "grpo")
PARTS = ("rollout", "credit", "update")
RUNGS = ("evict", "offload", "preempt")

GAUGES = {
    "reward": ("reward", "Mean reward of the last step's episodes."),
    "exact_match": ("exact_match_ratio", "Share of the last step's episodes that are exactly right."),
    "loss": ("loss", "Loss of the last step."),
    "grad_norm": ("gradient_norm", "Norm of the gradient of the last step, before it is clipped."),
    "clipped_ratio": ("clipped_ratio", "Share of loss terms of the last step whose ratio was clipped."),
    "capped_ratio": ("capped_ratio", "Share of loss terms of the last step whose importance weight was capped."),
    "entropy": ("entropy_nats", "Mean entropy of the policy at the last step's sampled tokens."),
    "kl": ("reference_kl_nats", "Mean k3 estimate of the KL to the first policy, last step."),
    "log_ratio_max": (
        "log_ratio_max_nats",
        "Largest difference of a log-probability between rollout and trainer, last step.",
    ),
}
"""Figures of the last step: name in `metrics.jsonl`, name of the metric, help."""

Values = dict[tuple[str, ...], float]
"""By the values of a metric's labels."""


def registry_of(observed: Observed) -> CollectorRegistry:
    """A registry of its own, with nothing in it but this run."""
    registry = CollectorRegistry(auto_describe=False)
    registry.register(RunCollector(observed))
    return registry


class RunCollector(Collector):
    """All metrics of a run."""

    def __init__(self, observed: Observed) -> None:
        self._observed = observed

    def collect(self) -> Iterator[Metric]:
        """Called at each scrape."""
        observed = self._observed
        yield _gauge("build_info", "The version of Octopus.", ("version",), {(__version__,): 1})
        at: Values = {(name,): float(name == observed.at) for name in get_args(Phase)}
        yield _gauge("run_phase", "What the run is at: 1 for one of the phases.", ("phase",), at)
        yield _gauge("run_paused", "Whether the run is to wait between two steps.", (), {(): observed.paused})
        yield _gauge("run_step", "The last step that was taken.", (), {(): observed.taken})
        yield _gauge("run_steps_planned", "The last step of the run.", (), {(): observed.of})
        if observed.last_step_s is not None:
            what = "When the last step was taken."
            yield _gauge("last_step_timestamp_seconds", what, (), {(): observed.last_step_s})
        yield from self._figures()
        yield from self._totals()
        if observed.store is not None:
            yield from _store(observed.store.stats())

    def _figures(self) -> Iterator[Metric]:
        for figure, (name, what) in GAUGES.items():
            value = self._observed.last.get(figure)
            if value is not None and math.isfinite(value):
                yield _gauge(name, what, (), {(): value})

    def _totals(self) -> Iterator[Metric]:
        of = self._observed.totals
        yield _counter("train_steps", "Steps taken.", ("stage",), _closed(of.steps, STAGES))
        yield _counter("nonfinite_steps", "Steps whose loss or gradient was not finite.", (), {(): of.nonfinite_steps})
        yield _counter("sampled_tokens", "Tokens that agents drew.", (), {(): of.sampled_tokens})
        yield _counter("packed_tokens", "Rows of packs that were learned from.", (), {(): of.packed_tokens})
        yield _counter("path_tokens", "Tokens of all threads, each on its own.", (), {(): of.path_tokens})
        yield _counter(
            "primitive_calls", "Primitives that agents used.", ("primitive",), _closed(of.primitives, PRIMITIVES)
        )
        yield _counter("episodes", "Episodes by how they ended.", ("outcome",), _closed(of.outcomes, get_args(Outcome)))
        yield _counter("zero_variance_groups", "Groups whose rewards are all equal.", (), {(): of.silent_groups})
        yield _counter("branch_terms_undefined", "Branch credits without a comparison.", (), {(): of.terms_undefined})
        yield _counter("branch_terms_clipped", "Branch credits beyond the clip.", (), {(): of.terms_clipped})
        yield _counter("train_oom_retries", "Passes of the trainer tried again in parts.", (), {(): of.oom_retries})
        yield _counter("step_seconds", "Time spent in parts of steps.", ("part",), _closed(of.seconds, PARTS))
        yield _counter("saves", "Saves written.", (), {(): of.saves})
        if self._observed.last_save is not None:
            yield _gauge("last_save_step", "The newest save.", (), {(): self._observed.last_save})


def _store(stats: StoreStats) -> Iterator[Metric]:
    pools = {"device": (stats.pages, stats.states), "host": (stats.host_pages, stats.host_states)}
    for place, name, what in ((0, "kv_pages", "KV pages."), (1, "recurrent_states", "Slots of recurrent states.")):
        yield _gauge(name, what, ("tier", "state"), dict(_pools({tier: pool[place] for tier, pool in pools.items()})))
    yield _gauge("kv_pages_cached", "Device pages that go as soon as room is needed.", (), {(): stats.pages_cached})
    yield _gauge("threads", "Threads that have not been dropped.", (), {(): stats.threads})
    yield _gauge("segments", "Segments of the graph.", (), {(): stats.segments})
    yield _gauge("transfers", "Copies between device and host under way.", (), {(): stats.transfers})
    of = stats.counters
    tried = {rung: (getattr(of, f"{rung}_tried"), getattr(of, f"{rung}_helped")) for rung in RUNGS}
    rungs: Values = {(rung, "helped"): helped for rung, (_, helped) in tried.items()}
    rungs |= {(rung, "did_not"): all_ - helped for rung, (all_, helped) in tried.items()}
    yield _counter("memory_ladder", "Rungs of the memory ladder tried.", ("rung", "outcome"), rungs)
    yield _counter("memory_ladder_refusals", "How often the ladder ended in a refusal.", (), {(): of.refused})
    out: Values = {("retried",): of.oom_retries, ("refused",): of.oom_refused}
    yield _counter("device_oom", "Rollout passes that ran out of device memory.", ("outcome",), out)
    how: Values = {("swapped",): of.preempted_swapped, ("recomputed",): of.preempted_recomputed}
    yield _counter("preemptions", "Threads that gave their memory up.", ("kind",), how)
    moved: Values = {("offload",): of.pages_offloaded, ("restore",): of.pages_restored}
    yield _counter("moved_pages", "Pages copied between device and host.", ("direction",), moved)
    failed: Values = {("offload",): of.offloads_failed, ("restore",): of.restores_failed}
    yield _counter("failed_transfers", "Copies that failed.", ("direction",), failed)
    yield _counter("evicted_pages", "Cached pages forgotten.", (), {(): of.evicted_pages})
    yield _counter("prefix_queries", "Look-ups of cached prefixes.", (), {(): of.match_calls})
    yield _counter("prefix_hit_tokens", "Tokens that they found.", (), {(): of.match_tokens})
    yield _counter("computed_tokens", "Tokens whose KV was computed.", (), {(): of.tokens_computed})
    yield _counter("recomputed_tokens", "Those computed more than once.", (), {(): of.tokens_recomputed})
    yield _counter("fingerprints_checked", "Pages and states compared.", (), {(): of.seals_checked})
    yield _counter("fingerprints_broken", "Those that had changed: contamination.", (), {(): of.seals_broken})


def _pools(pools: Mapping[str, PoolStats]) -> Iterator[tuple[tuple[str, ...], float]]:
    for tier, pool in pools.items():
        for state in ("free", "fenced", "used"):
            yield (tier, state), getattr(pool, state)


def _closed(found: Mapping[str, float], names: Iterable[str]) -> Values:
    """The figures of these names, 0 where there is none: a series exists from the first scrape on."""
    return {(name,): found.get(name, 0) for name in names}


def _gauge(name: str, what: str, labels: tuple[str, ...], values: Values) -> Metric:
    return _filled(GaugeMetricFamily(f"octopus_{name}", what, labels=labels), values)


def _counter(name: str, what: str, labels: tuple[str, ...], values: Values) -> Metric:
    return _filled(CounterMetricFamily(f"octopus_{name}", what, labels=labels), values)


def _filled(
    family: GaugeMetricFamily | CounterMetricFamily, values: Values
) -> GaugeMetricFamily | CounterMetricFamily:
    for labels, value in values.items():
        family.add_metric(labels, float(value))
    return family
