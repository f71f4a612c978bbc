"""A rollout step lowered for the paged kernels: each source's tokens grouped by the rows that see them."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Hashable, Iterator

import numpy as np
import torch

from octopus.attention.dag.groups import Sight, SlotsOf
from octopus.attention.dag.paged import PagedPass
from octopus.attention.rope import Rope
from octopus.attention.step_plan import KeyRange, StepPlan, StepRun
from octopus.core.errors import InvariantViolation


def step_pass(
    step: StepPlan,
    *,
    window: int | None,
    rope: Rope | None,
    heads: int,
    kv_heads: int,
    head_dim: int,
    device: torch.device,
) -> PagedPass | None:
    """Lowers a step for the layers of one window and rotary embedding.

    None if the kernels cannot compute it: rows of one run that see through a window, and do not all see the same of
    what lies before them. That is a windowed prefill; windowed decoding is fine.
    """
    if window is not None and any(_leaves_behind(run, window) for run in step.runs):
        return None
    return PagedPass.of(
        [sight for run in step.runs for sight in _sights(run, window)], _slots_of(step), step.positions_T, rope=rope,
        heads=heads, kv_heads=kv_heads, head_dim=head_dim, device=device, programs=_multiprocessors(device),
    )  # fmt: skip


def _sights(run: StepRun, window: int | None) -> Iterator[Sight]:
    rows = run.stop - run.start
    for keys in run.keys_within(window):
        yield Sight(keys.source, keys.start, keys.start + len(keys.slots_K), keys.shift, run.start, rows)
    yield Sight(run.own.source, run.own.start, run.own.start + rows, 0, run.start, rows, causal=True)


def _leaves_behind(run: StepRun, window: int) -> bool:
    """Whether the last row no longer sees something that the first one does."""
    last_left = run.own.seen_at + run.stop - run.start - 1 - window
    return any(keys.seen_at <= last_left for keys in (*run.keys_within(window), run.own))


def _slots_of(step: StepPlan) -> SlotsOf:
    known: defaultdict[Hashable, dict[tuple[int, int], KeyRange]] = defaultdict(dict)
    for run in step.runs:
        for keys in (*run.keys, run.own):
            known[keys.source][keys.start, len(keys.slots_K)] = keys

    def slots_of(source: Hashable, start: int, stop: int) -> np.ndarray:
        covers = (k for k in known[source].values() if k.start <= start and stop <= k.start + len(k.slots_K))
        for keys in covers:
            return keys.slots_K[start - keys.start : stop - keys.start]
        raise InvariantViolation(f"nobody sees all of tokens [{start}, {stop}) of {source}")

    return slots_of


def _multiprocessors(device: torch.device) -> int:
    return torch.cuda.get_device_properties(device).multi_processor_count if device.type == "cuda" else 1
