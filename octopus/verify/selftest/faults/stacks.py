"""Faults inside a stack: rotations, recurrences, and sums over the row that couple what must not be coupled."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager
from dataclasses import replace
from typing import Any
from unittest.mock import patch

import numpy as np
import torch
from torch import Tensor, nn

from octopus.attention import sliced
from octopus.attention.rope import Rope
from octopus.attention.runs import Runs, ancestor_rows, scan_runs
from octopus.models import recurrent
from octopus.models.gated_delta import DeltaInputs
from octopus.models.layers import plain
from octopus.verify.selftest.fault import OURS, QWEN, Fault

Inside = Callable[[nn.Module], AbstractContextManager[Any]]


def _shift_of_wrong_sign(model: nn.Module) -> AbstractContextManager[Any]:
    return patch.object(sliced, "query_positions", lambda positions_N, shift: positions_N + shift)


def _shift_on_all_dimensions(model: nn.Module) -> AbstractContextManager[Any]:
    """The dimensions without position turn too, by one radian a position."""
    rotate = Rope.rotate

    def rotated(rope: Rope, x_XTD: Tensor, positions_T: Tensor) -> Tensor:
        turned_XTD, rest_XTD = rotate(rope, x_XTD, positions_T).tensor_split([rope.rotary_dim], dim=-1)
        if not rest_XTD.shape[-1]:
            return turned_XTD
        rest = Rope(inverse_frequencies_R=torch.ones(rest_XTD.shape[-1] // 2, dtype=torch.float64))
        return torch.cat([turned_XTD, rotate(rest, rest_XTD, positions_T)], dim=-1)

    return patch.object(Rope, "rotate", rotated)


def _convolution_tail_lost(model: nn.Module) -> AbstractContextManager[Any]:
    def inside_runs(predecessors_T: np.ndarray, steps: int) -> np.ndarray:
        found = scan_runs(predecessors_T).runs
        first_T = np.repeat([run.start for run in found], [run.stop - run.start for run in found])
        rows_LT = ancestor_rows(predecessors_T, steps)
        return np.where(rows_LT >= first_T, rows_LT, -1)

    return patch.object(plain, "ancestor_rows", inside_runs)


def _convolution_over_the_row(model: nn.Module) -> AbstractContextManager[Any]:
    def along_the_row(predecessors_T: np.ndarray, steps: int) -> np.ndarray:
        return ancestor_rows(np.arange(-1, len(predecessors_T) - 1), steps)

    return patch.object(plain, "ancestor_rows", along_the_row)


def _state_of_previous_run(model: nn.Module) -> AbstractContextManager[Any]:
    scan = plain.scan_tree

    def scan_row(inputs: DeltaInputs, found: Runs, _: object) -> Tensor:
        chain = replace(found, runs=tuple(replace(run, parent=i - 1) for i, run in enumerate(found.runs)))
        spans = [(run.start, run.stop) for run in found.runs]
        batches = [
            batch
            for i in range(len(spans))
            for batch in recurrent.scan_batches(spans, [i], inputs.q_XHK.device)
        ]
        return scan(inputs, chain, batches)

    return patch.object(plain, "scan_tree", scan_row)


def _state_gradient_detached(model: nn.Module) -> AbstractContextManager[Any]:
    return patch.object(recurrent, "hand_over", Tensor.detach)


def _every_layer(change: Callable[[Tensor], Tensor]) -> Inside:
    """The hidden states `[B, T, C]` that leave each decoder layer are changed."""

    @contextmanager
    def inside(model: Any) -> Iterator[None]:
        def hook(module: nn.Module, args: Any, output: Any) -> Any:
            return change(output) if isinstance(output, Tensor) else (change(output[0]), *output[1:])

        with ExitStack() as hooks:
            for layer in model.model.layers:
                hooks.callback(layer.register_forward_hook(hook).remove)
            yield

    return inside


def _neighbour_mixed_in(x_BTC: Tensor) -> Tensor:
    return x_BTC + 0.05 * x_BTC.roll(1, dims=1)


def _scaled_by_the_row(x_BTC: Tensor) -> Tensor:
    """Rounded to 15 steps of the row's largest entry, as a quantiser with one scale for everybody does."""
    step = x_BTC.detach().abs().amax() / 7
    return x_BTC + ((x_BTC.detach() / step).round() * step - x_BTC.detach())


def _centred_over_the_row(x_BTC: Tensor) -> Tensor:
    return x_BTC - 0.1 * x_BTC.mean(dim=1, keepdim=True)


STACKS = (
    Fault(
        name="shift_of_wrong_sign",
        code="OCT204",
        about="Queries turn the wrong way to see mounted keys.",
        stacks=OURS,
        inside=_shift_of_wrong_sign,
    ),
    Fault(
        name="shift_on_all_dimensions",
        code="OCT206",
        about="Dimensions that carry no position turn as well.",
        stacks=(QWEN,),
        inside=_shift_on_all_dimensions,
    ),
    Fault(
        name="state_gradient_detached",
        code="OCT403",
        about="No gradient flows from a run back into its parent run.",
        stacks=(QWEN,),
        inside=_state_gradient_detached,
    ),
    Fault(
        name="convolution_tail_lost",
        code="OCT403",
        about="A run's convolution begins with zeros instead of its parent run's last columns.",
        stacks=(QWEN,),
        inside=_convolution_tail_lost,
    ),
    Fault(
        name="convolution_over_the_row",
        code="OCT501",
        about="A branch's convolution reads the last columns of the branch before it in the row.",
        stacks=(QWEN,),
        inside=_convolution_over_the_row,
    ),
    Fault(
        name="state_of_previous_run",
        code="OCT501",
        about="A run starts from the state that the run before it in the row ended with.",
        stacks=(QWEN,),
        inside=_state_of_previous_run,
    ),
    Fault(
        name="neighbour_mixed_in",
        code="OCT501",
        about="Something outside attention reads the row before, whoever wrote it.",
        inside=_every_layer(_neighbour_mixed_in),
    ),
    Fault(
        name="scaled_by_the_row",
        code="OCT505",
        about="One scale for the whole row: its largest entry, wherever it is, rounds everybody.",
        inside=_every_layer(_scaled_by_the_row),
    ),
    Fault(
        name="centred_over_the_row",
        code="OCT501",
        about="A statistic over all rows is taken out of each.",
        inside=_every_layer(_centred_over_the_row),
    ),
)
