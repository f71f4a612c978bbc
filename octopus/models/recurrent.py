"""Scans of a recurrent rule over many runs: which are computed together, and where each state comes from.

A run is a stretch of rows with no fork inside. Runs are batched by length class (the next power of two), one call for
each class: padding at most doubles the work. A run is cut into the same chunks whichever others share its batch, so it
is rounded alike. Runs of one token take a single step, all others go by chunks.

Letters: T rows, N rows of a batch in its order, B runs of a batch, H value heads, K key dimension, V value dimension.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Protocol, Self

import numpy as np
import torch
from torch import Tensor

from octopus.attention.runs import Runs
from octopus.models.gated_delta import CHUNK_SIZE


class RuleInputs(Protocol):
    """What each token brings to a recurrent rule: tensors with the same leading dimensions.

    A token that brings zeros leaves a state as it is.
    """

    def each(self, change: Callable[[Tensor], Tensor]) -> Self:
        """The same with every tensor changed."""
        ...

    def zero_state(self) -> Tensor:
        """The state [H, K, V] before any token, in `promote(dtype, float32)`."""
        ...

    def by_chunks(self, initial_BHKV: Tensor) -> tuple[Tensor, Tensor]:
        """With leading dimensions [B, tokens]: the outputs [B, tokens, H, V] and the states after the last token."""
        ...

    def by_step(self, state_BHKV: Tensor) -> tuple[Tensor, Tensor]:
        """With leading dimension [B], one token of each run: the outputs [B, H, V] and the states after it."""
        ...


@dataclass(frozen=True, kw_only=True, eq=False)
class ScanBatch:
    """Runs that are scanned by one call.

    Attributes:
        runs: Their indices.
        length: Tokens that each is padded to.
        rows_N: Their rows.
        rows: The same; a slice where they follow each other, which need not be gathered.
        places_N: Where these rows stand in the padded batch, laid flat.
    """

    runs: tuple[int, ...]
    length: int
    rows_N: Tensor
    rows: Tensor | slice
    places_N: Tensor


def scan_batches(
    spans: Sequence[tuple[int, int]], runs: Sequence[int], device: torch.device
) -> tuple[ScanBatch, ...]:
    """Groups `runs` by length class; `spans[run]` are the half-open rows of a run."""
    classes: dict[int, list[int]] = defaultdict(list)
    for run in runs:
        start, stop = spans[run]
        classes[1 << (stop - start - 1).bit_length()].append(run)
    return tuple(_batch(spans, members, size, device) for size, members in sorted(classes.items()))


def _batch(
    spans: Sequence[tuple[int, int]], members: Sequence[int], size: int, device: torch.device
) -> ScanBatch:
    start_B, stop_B = np.array([spans[run] for run in members]).T
    count_B = stop_B - start_B
    length = min(size, -(-int(count_B.max()) // CHUNK_SIZE) * CHUNK_SIZE)
    run_N = np.repeat(np.arange(len(members)), count_B)
    place_N = np.arange(len(run_N)) - (np.cumsum(count_B) - count_B)[run_N]  # Each row's place in its run.
    at_N = start_B[run_N] + place_N
    rows_N = torch.from_numpy(at_N).to(device)
    return ScanBatch(
        runs=tuple(members),
        length=length,
        rows_N=rows_N,
        rows=slice(int(at_N[0]), int(at_N[-1]) + 1) if (np.diff(at_N) == 1).all() else rows_N,
        places_N=torch.from_numpy(run_N * length + place_N).to(device),
    )


def scan_batch(inputs: RuleInputs, batch: ScanBatch, initial_BHKV: Tensor) -> tuple[Tensor, Tensor]:
    """Scans the runs of one batch.

    Returns:
        The outputs [N, H, V] in the batch's row order and the final states [B, H, K, V].
    """
    rows = inputs.each(lambda x: x[batch.rows])
    if batch.length == 1:
        return rows.by_step(initial_BHKV)
    out_BLHV, final_BHKV = rows.each(lambda x: _padded(x, batch)).by_chunks(initial_BHKV)
    return out_BLHV.flatten(0, 1)[batch.places_N], final_BHKV


def _padded(x_NX: Tensor, batch: ScanBatch) -> Tensor:
    """[N, ...] to [B, length, ...] with zeros, which the rule ignores, behind the shorter runs."""
    shape = (len(batch.runs), batch.length)
    flat = x_NX.new_zeros(shape[0] * shape[1], *x_NX.shape[1:])
    return flat.index_copy(0, batch.places_N, x_NX).unflatten(0, shape)


def in_row_order(outs: Sequence[Tensor], batches: Sequence[ScanBatch]) -> Tensor:
    """Lays the outputs of all batches, which together cover every row, back in the order of the rows."""
    if len(batches) == 1 and isinstance(batches[0].rows, slice):
        return outs[0]
    out_THV = torch.cat(tuple(outs))
    return torch.empty_like(out_THV).index_copy(0, torch.cat([batch.rows_N for batch in batches]), out_THV)


def tree_batches(runs: Runs, device: torch.device) -> tuple[ScanBatch, ...]:
    """Groups the runs of a pack, level by level, so that every parent is scanned before its children."""
    spans = [(run.start, run.stop) for run in runs.runs]
    return tuple(batch for level in runs.levels for batch in scan_batches(spans, level, device))


def scan_tree(inputs: RuleInputs, runs: Runs, batches: Sequence[ScanBatch]) -> Tensor:
    """Scans a pack: every run starts from the state its parent run ended with, and gradients flow back through it.

    Returns:
        The outputs [T, H, V] in `promote(dtype, float32)`.
    """
    zeros_HKV = inputs.zero_state()
    finals: dict[int, Tensor] = {}
    outs = []
    for batch in batches:
        sources = [source_run(runs, run) for run in batch.runs]
        initial_BHKV = torch.stack(
            [hand_over(finals[source]) if source >= 0 else zeros_HKV for source in sources]
        )
        out_NHV, final_BHKV = scan_batch(inputs, batch, initial_BHKV)
        outs.append(out_NHV)
        finals.update(zip(batch.runs, final_BHKV.unbind(), strict=True))
    return in_row_order(outs, batches)


def source_run(runs: Runs, run: int) -> int:
    """The run whose final state `run` starts from, -1 for zeros: its parent, never its neighbour in the row."""
    return runs.runs[run].parent


def hand_over(state_HKV: Tensor) -> Tensor:
    """The state as a child receives it from its parent run: the same tensor, so that gradients reach the parent."""
    return state_HKV
