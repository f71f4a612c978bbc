"""Faults to plant, one seam each: what a kernel, a plan or a trainer gets wrong in the field.

A fault takes a `MonkeyPatch`; while it is in place the exactness check must fail.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator
from dataclasses import replace

import comparison
import numpy as np
import pytest
import torch
from torch import Tensor

from octopus.attention import dense, sliced
from octopus.attention.plan import Plan, Slice
from octopus.attention.rope import Rope
from octopus.attention.runs import Runs, ancestor_rows, scan_runs
from octopus.core.cursor import Cursor
from octopus.core.segment import Segment
from octopus.models import recurrent
from octopus.models.gated_delta import DeltaInputs
from octopus.models.layers import plain
from octopus.models.recurrent import scan_batches
from octopus.train.targets import Targets


def sibling_visible(patch: pytest.MonkeyPatch) -> None:
    """A branch sees the tokens of the sibling laid out before it."""

    def changed(found: Plan) -> Plan:
        slices = list(found.slices)
        for older, younger in _siblings(found):
            rows, keys = _rows(found, younger), _rows(found, older)
            slices.append(
                Slice(q0=rows.start, q1=rows.stop, k0=keys.start, k1=keys.stop, causal=False, shift=0)
            )
        return replace(found, slices=tuple(slices))

    _patch_plan(patch, changed)


def row_as_position(patch: pytest.MonkeyPatch) -> None:
    """Positions are taken from the place in the row."""
    _patch_plan(patch, lambda found: replace(found, positions_T=np.arange(found.length)))


def mount_not_shifted(patch: pytest.MonkeyPatch) -> None:
    """Mounted keys are seen where they were written."""
    _patch_plan(patch, lambda found: replace(found, slices=tuple(replace(s, shift=0) for s in found.slices)))


def shift_of_wrong_sign(patch: pytest.MonkeyPatch) -> None:
    """Queries turn the wrong way."""
    patch.setattr(sliced, "query_positions", lambda positions_N, shift: positions_N + shift)


def shift_on_all_dimensions(patch: pytest.MonkeyPatch) -> None:
    """The shift also turns the dimensions that carry no position."""
    rotate, shifts = sliced.apply_rope, []

    def own_positions(positions_N: Tensor, shift: int) -> Tensor:
        shifts.append(shift)
        return positions_N

    def apply(rope: Rope, x_XTD: Tensor, positions_T: Tensor) -> Tensor:
        x_XTD = rotate(rope, x_XTD, positions_T)
        if not shifts:
            return x_XTD
        back_T = torch.full_like(positions_T, -shifts.pop())
        turned_XTD, rest_XTD = x_XTD.tensor_split([rope.rotary_dim], dim=-1)
        rest = Rope(inverse_frequencies_R=torch.ones(rest_XTD.shape[-1] // 2, dtype=torch.float64))
        return torch.cat([rope.rotate(turned_XTD, back_T), rest.rotate(rest_XTD, back_T)], dim=-1)

    patch.setattr(sliced, "query_positions", own_positions)
    patch.setattr(sliced, "apply_rope", apply)


def heads_tiled(patch: pytest.MonkeyPatch) -> None:
    """Query head h reads key/value head h % G instead of h // (H / G)."""

    def group(x_HNX: Tensor, kv_heads: int) -> Tensor:
        return x_HNX.unflatten(0, (-1, kv_heads)).transpose(0, 1).flatten(1, 2)

    def ungroup(x_GMX: Tensor, heads: int) -> Tensor:
        return x_GMX.unflatten(1, (heads // len(x_GMX), -1)).transpose(0, 1).flatten(0, 1)

    patch.setattr(dense, "group_heads", group)
    patch.setattr(dense, "ungroup_heads", ungroup)


def convolution_tail_lost(patch: pytest.MonkeyPatch) -> None:
    """A run's convolution begins with zeros instead of its parent run's last columns."""

    def inside_runs(predecessors_T: np.ndarray, steps: int) -> np.ndarray:
        found = scan_runs(predecessors_T).runs
        first_T = np.repeat([run.start for run in found], [run.stop - run.start for run in found])
        rows_LT = ancestor_rows(predecessors_T, steps)
        return np.where(rows_LT >= first_T, rows_LT, -1)

    patch.setattr(plain, "ancestor_rows", inside_runs)


def state_of_previous_run(patch: pytest.MonkeyPatch) -> None:
    """A run starts from the state that the run before it in the row ended with."""
    scan = plain.scan_tree

    def scan_row(inputs: DeltaInputs, found: Runs, _: object) -> Tensor:
        chain = replace(found, runs=tuple(replace(run, parent=i - 1) for i, run in enumerate(found.runs)))
        spans = [(run.start, run.stop) for run in found.runs]
        batches = [
            batch for i in range(len(spans)) for batch in scan_batches(spans, [i], inputs.q_XHK.device)
        ]
        return scan(inputs, chain, batches)

    patch.setattr(plain, "scan_tree", scan_row)


def state_gradient_detached(patch: pytest.MonkeyPatch) -> None:
    """No gradient flows from a run back into its parent run."""
    patch.setattr(recurrent, "hand_over", Tensor.detach)


def label_scored_from_previous_row(patch: pytest.MonkeyPatch) -> None:
    """Labels are the tokens shifted by one row, as in a plain sequence."""
    right = comparison.targets

    def shifted(found: Plan) -> Targets:
        return replace(right(found), predictor_rows_N=right(found).token_rows_N - 1)

    patch.setattr(comparison, "targets", shifted)


def mount_seen_too_early(patch: pytest.MonkeyPatch) -> None:
    """The reader's last token before a mount sees it already."""

    def changed(found: Plan) -> Plan:
        before = found.predecessors_T
        slices = [
            replace(s, q0=s.q0 - 1) if _is_mount(found, s) and before[s.q0] == s.q0 - 1 else s
            for s in found.slices
        ]
        return replace(found, slices=tuple(slices))

    _patch_plan(patch, changed)


def key_counted_twice(patch: pytest.MonkeyPatch) -> None:
    """A mounted part comes in two slices that overlap."""

    def changed(found: Plan) -> Plan:
        again = [replace(s, k0=s.k1 - 1) for s in found.slices if _is_mount(found, s)]
        return replace(found, slices=found.slices + tuple(again))

    _patch_plan(patch, changed)


RECURRENT_FAULTS = (convolution_tail_lost, state_of_previous_run, state_gradient_detached)
PARTIAL_ROTARY_FAULTS = (shift_on_all_dimensions,)
FAULTS = (
    sibling_visible,
    row_as_position,
    mount_not_shifted,
    shift_of_wrong_sign,
    heads_tiled,
    label_scored_from_previous_row,
    mount_seen_too_early,
    key_counted_twice,
)


def _patch_plan(patch: pytest.MonkeyPatch, change: Callable[[Plan], Plan]) -> None:
    right = comparison.lowered

    def changed(episode: object) -> tuple[Plan, np.ndarray]:
        found, rows_I = right(episode)
        return change(found), rows_I

    patch.setattr(comparison, "lowered", changed)


def _siblings(found: Plan) -> Iterator[tuple[Segment, Segment]]:
    """Segments that continue the same cursor, each with the next in the row."""
    families: dict[Cursor | None, list[Segment]] = {}
    for segment in found.starts:
        if segment.tokens:
            families.setdefault(segment.parent, []).append(segment)
    for parent, children in families.items():
        if parent is not None:
            yield from itertools.pairwise(children)


def _rows(found: Plan, segment: Segment) -> range:
    return range(found.starts[segment], found.starts[segment] + len(segment.tokens))


def _is_mount(found: Plan, piece: Slice) -> bool:
    """Whether it is no stretch of the path: those are seen by all rows from their end to their subtree's end."""
    return not piece.causal and (piece.q0, piece.q1) != (piece.k1, found.subtree_ends_T[piece.k0])
