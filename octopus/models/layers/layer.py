"""What must be offered by whatever computes a model's norms, gated units and recurrences.

Letters: X any leading dimensions, D normalised dimension, F width of a gated unit, T rows, Hv value heads, V their
dimension.
"""

from __future__ import annotations

from typing import Protocol

import torch
from torch import Tensor

from octopus.attention.plan import Plan
from octopus.models.context import RecurrentLayer


class Recurrence(Protocol):
    """A pack's recurrent layers: who continues whose state. Holds no layer's state, so any layer may be recomputed."""

    def recur(self, projected: RecurrentLayer) -> Tensor:
        """Convolution and scan along every path of the pack. Returns [T, Hv, V], in at least the model's dtype."""
        ...


class Layers(Protocol):
    """One way to compute them all; differentiable, each sum in at least float32."""

    def rms_norm(self, x_XD: Tensor, weight_D: Tensor, epsilon: float) -> Tensor:
        """Root-mean-square normalisation (Zhang and Sennrich, arXiv 1910.07467), in x's dtype."""
        ...

    def gated_rms_norm(self, x_XD: Tensor, gate_XD: Tensor, weight_D: Tensor, epsilon: float) -> Tensor:
        """The same, times SiLU of a gate, in the gate's dtype."""
        ...

    def swiglu(self, gate_XF: Tensor, up_XF: Tensor) -> Tensor:
        """SiLU(gate) times up (Shazeer, arXiv 2002.05202)."""
        ...

    def recurrence(self, plan: Plan, kernel_size: int, device: torch.device) -> Recurrence:
        """What a pack's recurrent layers share; `kernel_size` is that of their short convolutions."""
        ...
