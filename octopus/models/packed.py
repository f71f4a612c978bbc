"""The context of a training pass: visibility from a plan, states from run to run, everything differentiable.

Letters: T rows, H query heads, G key/value heads, D head dimension, W kernel size.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import torch
from torch import Tensor

from octopus.attention.backends import attend
from octopus.attention.plan import Plan
from octopus.attention.runs import ancestor_rows
from octopus.models.context import DeltaLayer
from octopus.models.recurrent import ScanBatch, scan_tree, tree_batches
from octopus.models.rotary import Rotary
from octopus.models.short_conv import short_convolution


@dataclass(frozen=True, kw_only=True, eq=False)
class PackedContext:
    """Attention over a plan and scans over its tree of runs. Holds no layer's state, so any layer may be recomputed.

    Attributes:
        plan: The pack.
        rotaries: Rotary embedding of each layer.
        backend: Name of the attention backend.
        kernel_size: Of the short convolutions.
        device: Where the rows are.
    """

    plan: Plan
    rotaries: Sequence[Rotary]
    backend: str
    kernel_size: int
    device: torch.device

    def attend(
        self, layer: int, q_HTD: Tensor, k_GTD: Tensor, v_GTD: Tensor, *, scale: float, window: int | None
    ) -> Tensor:
        """See `Context.attend`."""
        rotary = self.rotaries[layer]
        out_HTD, _ = attend(
            rotary.weighted(q_HTD),
            k_GTD,
            v_GTD,
            plan=self.plan,
            rope=rotary.rope,
            scale=scale,
            window=window,
            backend=self.backend,
        )
        return out_HTD

    def recur(self, layer: int, projected: DeltaLayer) -> Tensor:
        """See `Context.recur`."""
        mixed_TC = short_convolution(projected.columns_TC, self._taps, projected.weight_CW)
        return scan_tree(projected.inputs(mixed_TC), self.plan.runs, self._batches)

    @cached_property
    def _taps(self) -> Tensor:
        return torch.from_numpy(ancestor_rows(self.plan.predecessors_T, self.kernel_size)).to(self.device)

    @cached_property
    def _batches(self) -> tuple[ScanBatch, ...]:
        return tree_batches(self.plan.runs, self.device)
