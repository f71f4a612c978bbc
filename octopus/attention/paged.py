"""Attention of a batch of runs over stored keys and values, in plain torch: the specification of paged decode.

Each run gathers the slots it sees and no other, so whatever lies elsewhere (NaN included) cannot reach it, and a run's
output does not depend on who shares its batch. Stored keys stay as they were written; for keys seen `shift` positions
further on, the run's queries are rotated, once and from the unrotated query, to their own position less `shift`.

In a layer with a sliding window a run gathers what its first row still sees, and what a later row has left behind is
hidden from that row. The store keeps all slots: layers share pages, and those without a window see all of them.

Letters: T rows of the batch, N rows of one run, S slots, K visible slots, H query heads, G key/value heads,
M = (H / G) * N stacked rows, D head dimension.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import chain

import numpy as np
import torch
from torch import Tensor

from octopus.attention import dense
from octopus.attention.rope import Rope, apply_rope
from octopus.attention.step_plan import KeyRange, StepPlan, StepRun
from octopus.attention.windowed import refuse_empty


@dataclass(frozen=True, kw_only=True, eq=False)
class RunKeys:
    """The slots that rows `[start, stop)` see.

    Attributes:
        parts: Slots and their shift. The last part has shift 0 and ends with the slots of the run's own rows, of which
            row i sees the first i + 1; all other slots are visible to every row that has not left them behind.
        left_NK: Which slots of all parts, in their order, each row has left behind its window; None if there are none.
    """

    start: int
    stop: int
    parts: tuple[tuple[Tensor, int], ...]
    left_NK: Tensor | None


@dataclass(frozen=True, kw_only=True, eq=False)
class StepRows:
    """The rows of a step plan, as tensors.

    Attributes:
        positions_T: Position of each row.
        written_N: The rows whose keys and values are kept.
        slots_N: The slots they go to.
    """

    positions_T: Tensor
    written_N: Tensor
    slots_N: Tensor

    @classmethod
    def of(cls, step: StepPlan, device: torch.device) -> StepRows:
        """Moves them to `device`, where the batch's store is."""
        written_N = np.flatnonzero(step.slots_T >= 0)
        return cls(
            positions_T=torch.from_numpy(step.positions_T).to(device),
            written_N=torch.from_numpy(written_N).to(device),
            slots_N=torch.from_numpy(step.slots_T[written_N]).to(device),
        )


@dataclass(frozen=True, kw_only=True, eq=False)
class StepIndex:
    """What the rows of a step plan see, as tensors: made once a step and window, used by every such layer.

    Attributes:
        positions_T: Position of each row.
        runs: What each run sees.
    """

    positions_T: Tensor
    runs: tuple[RunKeys, ...]

    @classmethod
    def of(cls, step: StepPlan, device: torch.device, *, window: int | None = None) -> StepIndex:
        """Moves a step plan to `device`.

        Args:
            step: the batch.
            device: where its store is.
            window: number of positions that a row sees, its own the last of them; None for its whole view.

        Raises:
            ValueError: the window is less than one position.
        """
        if window is not None:
            refuse_empty(window)
        return cls(
            positions_T=torch.from_numpy(step.positions_T).to(device),
            runs=tuple(_run_keys(run, window, device) for run in step.runs),
        )


def _run_keys(run: StepRun, window: int | None, device: torch.device) -> RunKeys:
    by_shift: dict[int, list[KeyRange]] = defaultdict(list)
    for keys in run.keys_within(window):
        by_shift[keys.shift].append(keys)
    by_shift[0] = [*by_shift.pop(0, ()), run.own]  # Last.
    parts = [(np.concatenate([keys.slots_K for keys in ranges]), shift) for shift, ranges in by_shift.items()]
    return RunKeys(
        start=run.start,
        stop=run.stop,
        parts=tuple((torch.from_numpy(slots_K).to(device), shift) for slots_K, shift in parts),
        left_NK=None if window is None else _left(run, [*chain(*by_shift.values())], window, device),
    )


def _left(run: StepRun, seen: Sequence[KeyRange], window: int, device: torch.device) -> Tensor | None:
    """See `RunKeys.left_NK`; `seen` ends with the run's own rows."""
    seen_at_K = np.concatenate([keys.seen_at + np.arange(len(keys.slots_K)) for keys in seen])
    position_N1 = seen[-1].seen_at + np.arange(run.stop - run.start)[:, None]
    left_NK = seen_at_K <= position_N1 - window
    return torch.from_numpy(left_NK).to(device) if left_NK.any() else None


def write_paged(
    keys_SGD: Tensor, values_SGD: Tensor, k_GTD: Tensor, v_GTD: Tensor, *, rows: StepRows, rope: Rope | None
) -> None:
    """Writes a layer's new keys, rotated to their own positions, and values into their slots, in place.

    All rows are written before any attends, so one run may see what another run of the same step wrote.
    """
    k_GTD = apply_rope(rope, k_GTD, rows.positions_T)
    for store_SGD, new_GTD in ((keys_SGD, k_GTD), (values_SGD, v_GTD)):
        new_NGD = new_GTD.transpose(0, 1)[rows.written_N].to(store_SGD.dtype)
        store_SGD.index_copy_(0, rows.slots_N, new_NGD)


def attend_paged(
    q_HTD: Tensor, keys_SGD: Tensor, values_SGD: Tensor, *, index: StepIndex, rope: Rope | None, scale: float
) -> Tensor:
    """Softmax attention of every row of a batch over the slots that its run sees.

    Args:
        q_HTD: queries, not rotated. Query head h reads key/value head `h // (H // G)`.
        keys_SGD: stored keys, each rotated to its own position; the batch's own are already written.
        values_SGD: stored values.
        index: who sees which slots, and with which shifts.
        rope: rotary embedding, None for a model without positions.
        scale: factor of the scores.

    Returns:
        `out_HTD` in q's dtype; computed in `promote(q.dtype, float32)`.
    """
    out_HTD = torch.empty_like(q_HTD)
    for run in index.runs:
        rows = slice(run.start, run.stop)
        out_HTD[:, rows] = _attend_run(
            q_HTD[:, rows], keys_SGD, values_SGD, run, index.positions_T[rows], rope, scale
        )
    return out_HTD


def _attend_run(
    q_HND: Tensor,
    keys_SGD: Tensor,
    values_SGD: Tensor,
    run: RunKeys,
    positions_N: Tensor,
    rope: Rope | None,
    scale: float,
) -> Tensor:
    """One softmax over everything that a run sees."""
    heads, kv_heads = q_HND.shape[0], keys_SGD.shape[1]
    scores = []
    for slots_K, shift in run.parts:
        q_GMD = dense.group_heads(apply_rope(rope, q_HND, positions_N - shift), kv_heads)
        k_GKD = keys_SGD[slots_K].transpose(0, 1).to(q_GMD.dtype)
        scores.append(q_GMD @ k_GKD.mT * scale)
    _hide_later_rows(scores[-1], rows=q_HND.shape[1])
    scores_GMK = torch.cat(scores, dim=-1)
    if run.left_NK is not None:
        scores_GMK.unflatten(1, (-1, len(run.left_NK))).masked_fill_(run.left_NK, -torch.inf)
    probabilities_GMK = torch.softmax(scores_GMK, dim=-1)
    v_GKD = values_SGD[torch.cat([slots_K for slots_K, _ in run.parts])].transpose(0, 1)
    out_GMD = probabilities_GMK @ v_GKD.to(probabilities_GMK.dtype)
    return dense.ungroup_heads(out_GMD, heads).to(q_HND.dtype)


def _hide_later_rows(scores_GMK: Tensor, rows: int) -> None:
    """Puts -inf where a row meets a later one of its run, whose keys are the last columns. In place."""
    later_NN = torch.ones(rows, rows, dtype=torch.bool, device=scores_GMK.device).triu(1)
    scores_GMK.unflatten(1, (-1, rows))[..., -rows:].masked_fill_(later_NN, -torch.inf)
