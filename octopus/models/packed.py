"""The context of a training pass: visibility from a plan, states from run to run, everything differentiable.

Letters: T rows, H query heads, G key/value heads, D head dimension.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import torch
from torch import Tensor

from octopus.attention.backends import attend
from octopus.attention.plan import Plan
from octopus.models.context import RecurrentLayer
from octopus.models.layers.layer import Layers, Recurrence
from octopus.models.rotary import Rotary


@dataclass(frozen=True, kw_only=True, eq=False)
class PackedContext:
    """Attention over a plan and scans over its tree of runs. Holds no layer's state, so any layer may be recomputed.

    Attributes:
        plan: The pack.
        rotaries: Rotary embedding of each layer.
        backend: Name of the attention backend.
        layers: What computes recurrent layers.
        kernel_size: Of the short convolutions.
        device: Where the rows are.
    """

    plan: Plan
    rotaries: Sequence[Rotary]
    backend: str
    layers: Layers
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

    def recur(self, layer: int, projected: RecurrentLayer) -> Tensor:
        """See `Context.recur`."""
        return self._recurrence.recur(projected)

    @cached_property
    def _recurrence(self) -> Recurrence:
        return self.layers.recurrence(self.plan, self.kernel_size, self.device)
