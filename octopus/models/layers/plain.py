"""Layers in plain PyTorch: for any device and dtype, differentiable twice, and what the others are compared with.

Letters: X any leading dimensions, D normalised dimension, F width of a gated unit, T rows, W kernel size.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn.functional import silu

from octopus.attention.plan import Plan
from octopus.attention.runs import Runs, ancestor_rows
from octopus.models.context import RecurrentLayer
from octopus.models.recurrent import ScanBatch, scan_tree, tree_batches
from octopus.models.short_conv import short_convolution


class PlainLayers:
    """See `Layers`."""

    def rms_norm(self, x_XD: Tensor, weight_D: Tensor, epsilon: float) -> Tensor:
        """See `Layers.rms_norm`."""
        return (weight_D * normed(x_XD, epsilon)).to(x_XD.dtype)

    def gated_rms_norm(self, x_XD: Tensor, gate_XD: Tensor, weight_D: Tensor, epsilon: float) -> Tensor:
        """See `Layers.gated_rms_norm`."""
        return (weight_D * normed(x_XD, epsilon) * silu(promoted(gate_XD))).to(gate_XD.dtype)

    def swiglu(self, gate_XF: Tensor, up_XF: Tensor) -> Tensor:
        """See `Layers.swiglu`."""
        return silu(gate_XF) * up_XF

    def recurrence(self, plan: Plan, kernel_size: int, device: torch.device) -> PlainRecurrence:
        """See `Layers.recurrence`."""
        taps_WT = torch.from_numpy(ancestor_rows(plan.predecessors_T, kernel_size)).to(device)
        return PlainRecurrence(runs=plan.runs, batches=tree_batches(plan.runs, device), taps_WT=taps_WT)


@dataclass(frozen=True, kw_only=True, eq=False)
class PlainRecurrence:
    """See `Recurrence`.

    Attributes:
        runs: Of the pack.
        batches: The runs, grouped for the scan.
        taps_WT: The row 0, 1, ... steps before each row on its path, -1 where there is none.
    """

    runs: Runs
    batches: tuple[ScanBatch, ...]
    taps_WT: Tensor

    def recur(self, projected: RecurrentLayer) -> Tensor:
        """See `Recurrence.recur`."""
        mixed_TC = short_convolution(projected.columns_TC, self.taps_WT, projected.weight_CW, projected.bias_C)
        return scan_tree(projected.inputs(mixed_TC), self.runs, self.batches)


def promoted(x: Tensor) -> Tensor:
    """In at least float32."""
    return x.to(torch.promote_types(x.dtype, torch.float32))


def normed(x_XD: Tensor, epsilon: float) -> Tensor:
    """Divided by its root mean square, in at least float32."""
    x_XD = promoted(x_XD)
    return x_XD * torch.rsqrt(x_XD.square().mean(dim=-1, keepdim=True) + epsilon)
