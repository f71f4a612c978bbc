"""A run as Prometheus scrapes it. Everything is computed when it is asked for; labels are closed sets.

Gauges come from the store itself, not from what a step left behind, so that they fall when memory is given back.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from typing import get_args

from prometheus_client import CollectorRegistry
from prometheus_client.core import Metric
from prometheus_client.registry import Collector

from octopus import __version__
from octopus.core.ladder import Ladder
from octopus.core.stats import PoolStats, StoreStats
from octopus.rollout.agents import State
from octopus.rollout.cancelling import LONGEST_S, Cancelling, Reason
from octopus.rollout.play import Outcome
from octopus.train.credit.crediting import EDGES
from octopus.train.service.families import Values, closed, counter, gauge, histogram, histograms
from octopus.train.service.observed import PARTS, SLOWEST_S, Observed
from octopus.train.watching import Phase

PRIMITIVES = ("fork", "read_thread", "wait_threads", "rewind", "commit")
STAGES = ("imitation", "grpo")
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
    "silent_share": ("zero_variance_group_ratio", "Share of the last step's groups whose rewards are all equal."),
    "mismatch_kl": ("mismatch_kl_nats", "Mean k3 estimate of the KL from rollout to trainer, last step."),
    "policy_lag": ("policy_lag_steps", "Steps from the oldest weights that sampled to those that learn, last step."),
    "log_ratio_max": (
        "log_ratio_max_nats",
        "Largest difference of a log-probability between rollout and trainer, last step.",
    ),
}
"""Figures of the last step: name in `metrics.jsonl`, name of the metric, help."""


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
        yield gauge("build_info", "The version of Octopus.", ("version",), {(__version__,): 1})
        at: Values = {(name,): float(name == observed.at) for name in get_args(Phase)}
        yield gauge("run_phase", "What the run is at: 1 for one of the phases.", ("phase",), at)
        yield gauge("run_paused", "Whether the run is to wait between two steps.", (), {(): observed.paused})
        yield gauge("run_waiting", "Whether it does wait.", (), {(): observed.waiting})
        yield gauge("run_step", "The last step that was taken.", (), {(): observed.taken})
        yield gauge("run_steps_planned", "The last step of the run.", (), {(): observed.of})
        if observed.last_step_s is not None:
            what = "When the last step was taken."
            yield gauge("last_step_timestamp_seconds", what, (), {(): observed.last_step_s})
        yield from self._figures()
        yield from self._totals()
        yield from _cancelled(observed.cancelling)
        if observed.store is not None:
            yield from _store(observed.store.stats())
            yield from _ladder_seconds(observed.store.retention.ladder)

    def _figures(self) -> Iterator[Metric]:
        for figure, (name, what) in GAUGES.items():
            value = self._observed.last.get(figure)
            if value is not None and math.isfinite(value):
                yield gauge(name, what, (), {(): value})

    def _totals(self) -> Iterator[Metric]:
        of = self._observed.totals
        yield counter("train_steps", "Steps taken.", ("stage",), closed(of.steps, STAGES))
        yield counter("nonfinite_steps", "Steps whose loss or gradient was not finite.", (), {(): of.nonfinite_steps})
        yield counter("sampled_tokens", "Tokens that agents drew.", (), {(): of.sampled_tokens})
        yield counter("packed_tokens", "Rows of packs that were learned from.", (), {(): of.packed_tokens})
        yield counter("path_tokens", "Tokens of all threads, each on its own.", (), {(): of.path_tokens})
        yield counter(
            "primitive_calls", "Primitives that agents used.", ("primitive",), closed(of.primitives, PRIMITIVES)
        )
        yield counter("episodes", "Episodes by how they ended.", ("outcome",), closed(of.outcomes, get_args(Outcome)))
        yield counter("zero_variance_groups", "Groups whose rewards are all equal.", (), {(): of.silent_groups})
        yield counter("branch_terms_undefined", "Branch credits without a comparison.", (), {(): of.terms_undefined})
        yield counter("branch_terms_clipped", "Branch credits beyond the clip.", (), {(): of.terms_clipped})
        cells: Values = {(low,): of.terms[cell] for cell, low in enumerate(("-Inf", *map(str, EDGES)))}
        yield counter("branch_terms", "Branch credits by the lower end of their range.", ("at_least",), cells)
        yield counter("tool_calls", "Calls of tools.", ("outcome",), closed(of.tool_calls, ("ok", "failed")))
        what = "Time from the call of a tool to what came back, further tries included."
        yield counter("tool_seconds", what, ("outcome",), closed(of.tool_s, ("ok", "failed")))
        yield counter("train_oom_retries", "Passes of the trainer tried again in parts.", (), {(): of.oom_retries})
        times = {part: (of.cells[part], of.seconds[part]) for part in PARTS}
        yield histograms("step_seconds", "Time of each part of a step.", "part", SLOWEST_S, times)
        yield counter("saves", "Saves written.", (), {(): of.saves})
        yield counter("save_seconds", "Time that writing them took.", (), {(): of.save_s})
        if self._observed.last_save is not None:
            yield gauge("last_save_step", "The newest save.", (), {(): self._observed.last_save})


def _store(stats: StoreStats) -> Iterator[Metric]:
    pools = {"device": (stats.pages, stats.states), "host": (stats.host_pages, stats.host_states)}
    for place, name, what in ((0, "kv_pages", "KV pages."), (1, "recurrent_states", "Slots of recurrent states.")):
        yield gauge(name, what, ("tier", "state"), dict(_pools({tier: pool[place] for tier, pool in pools.items()})))
    yield gauge("kv_pages_cached", "Device pages that go as soon as room is needed.", (), {(): stats.pages_cached})
    yield gauge("threads", "Threads that have not been dropped.", (), {(): stats.threads})
    yield gauge("segments", "Segments of the graph.", (), {(): stats.segments})
    yield gauge("transfers", "Copies between device and host under way.", (), {(): stats.transfers})
    of = stats.counters
    tried = {rung: (getattr(of, f"{rung}_tried"), getattr(of, f"{rung}_helped")) for rung in RUNGS}
    rungs: Values = {(rung, "helped"): helped for rung, (_, helped) in tried.items()}
    rungs |= {(rung, "did_not"): all_ - helped for rung, (all_, helped) in tried.items()}
    yield counter("memory_ladder", "Rungs of the memory ladder tried.", ("rung", "outcome"), rungs)
    yield counter("memory_ladder_refusals", "How often the ladder ended in a refusal.", (), {(): of.refused})
    out: Values = {("retried",): of.oom_retries, ("refused",): of.oom_refused}
    yield counter("device_oom", "Rollout passes that ran out of device memory.", ("outcome",), out)
    how: Values = {("swapped",): of.preempted_swapped, ("recomputed",): of.preempted_recomputed}
    yield counter("preemptions", "Threads that gave their memory up.", ("kind",), how)
    moved: Values = {("offload",): of.pages_offloaded, ("restore",): of.pages_restored}
    yield counter("moved_pages", "Pages copied between device and host.", ("direction",), moved)
    failed: Values = {("offload",): of.offloads_failed, ("restore",): of.restores_failed}
    yield counter("failed_transfers", "Copies that failed.", ("direction",), failed)
    yield counter("evicted_pages", "Cached pages forgotten.", (), {(): of.evicted_pages})
    yield counter("prefix_queries", "Look-ups of cached prefixes.", (), {(): of.match_calls})
    yield counter("prefix_hit_tokens", "Tokens that they found.", (), {(): of.match_tokens})
    yield counter("computed_tokens", "Tokens whose KV was computed.", (), {(): of.tokens_computed})
    yield counter("recomputed_tokens", "Those computed more than once.", (), {(): of.tokens_recomputed})
    yield counter("fingerprints_checked", "Pages and states compared.", (), {(): of.seals_checked})
    yield counter("fingerprints_broken", "Those that had changed: contamination.", (), {(): of.seals_broken})


def _ladder_seconds(of: Ladder) -> Iterator[Metric]:
    spent: Values = {}
    for rung in RUNGS:
        spent |= {(rung, "helped"): of.seconds[rung, True], (rung, "did_not"): of.seconds[rung, False]}
    yield counter("memory_ladder_seconds", "Time spent on those rungs.", ("rung", "outcome"), spent)
    what = "Time of the rounds that ended in a refusal, their rungs included."
    yield counter("memory_ladder_refusal_seconds", what, (), {(): of.refused_s})


def _pools(pools: Mapping[str, PoolStats]) -> Iterator[tuple[tuple[str, ...], float]]:
    for tier, pool in pools.items():
        for state in ("free", "fenced", "used"):
            yield (tier, state), getattr(pool, state)


def _cancelled(of: Cancelling) -> Iterator[Metric]:
    phases = [state for state in State if state is not State.ENDED]
    ended: Values = {(why, at.value): of.ended[why, at] for why in get_args(Reason) for at in phases}
    yield counter("cancellations", "Threads and episodes that were cancelled.", ("reason", "phase"), ended)
    what = "Time from the request to cancel to the return of the memory."
    yield histogram("cancel_release_seconds", what, LONGEST_S, of.released, of.release_s)
