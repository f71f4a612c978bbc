"""Layers by flash-linear-attention: its Triton kernels for norms, gated units, short convolutions and the delta rule.

A pack's runs are its sequences. The convolution takes all of them at once, each behind the columns that its path ends
with; the scan takes one level of the tree at a time, each run from the state that its parent run ended with. Recurrent
layers that are no Gated DeltaNet are left to plain PyTorch.

Letters: X any leading dimensions, D normalised dimension, F width of a gated unit, T rows of the pack, N rows of a
level, R runs, B runs of a level, C channels, W kernel size, J key heads, Hv value heads, K and V their dimensions.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import torch
from torch import Tensor

from octopus.attention.plan import Plan
from octopus.attention.runs import ancestor_rows
from octopus.models.context import DeltaLayer, RecurrentLayer
from octopus.models.layers.layer import Recurrence
from octopus.models.layers.plain import PlainLayers
from octopus.models.layers.reordering import reordered
from octopus.models.recurrent import hand_over
from octopus.models.short_conv import gather_columns


@dataclass(frozen=True, kw_only=True)
class Kernels:
    """The functions of the library that are used, as it declares them."""

    rms_norm: Callable[..., Tensor]
    rms_norm_gated: Callable[..., Tensor]
    swiglu: Callable[..., Tensor]
    causal_conv1d: Callable[..., tuple[Tensor, Any]]
    chunk_gated_delta_rule: Callable[..., tuple[Tensor, Tensor]]

    @classmethod
    def load(cls) -> Kernels:
        """Imports the library."""
        from fla.modules.activations import swiglu
        from fla.modules.causal_conv1d.ops import causal_conv1d
        from fla.modules.norm.fused_norm_gate import rms_norm_gated
        from fla.modules.norm.layernorm import rms_norm
        from fla.ops.gated_delta_rule import chunk_gated_delta_rule

        return cls(
            rms_norm=rms_norm,
            rms_norm_gated=rms_norm_gated,
            swiglu=swiglu,
            causal_conv1d=causal_conv1d,
            chunk_gated_delta_rule=chunk_gated_delta_rule,
        )


class FlaLayers:
    """See `Layers`."""

    def __init__(self, kernels: Kernels) -> None:
        self._kernels = kernels

    def rms_norm(self, x_XD: Tensor, weight_D: Tensor, epsilon: float) -> Tensor:
        """See `Layers.rms_norm`."""
        return self._kernels.rms_norm(x_XD, weight_D, None, eps=epsilon)

    def gated_rms_norm(self, x_XD: Tensor, gate_XD: Tensor, weight_D: Tensor, epsilon: float) -> Tensor:
        """See `Layers.gated_rms_norm`."""
        return self._kernels.rms_norm_gated(x_XD.to(gate_XD.dtype), gate_XD, weight_D, None, eps=epsilon)

    def swiglu(self, gate_XF: Tensor, up_XF: Tensor) -> Tensor:
        """See `Layers.swiglu`."""
        return self._kernels.swiglu(gate_XF, up_XF)

    def recurrence(self, plan: Plan, kernel_size: int, device: torch.device) -> FlaRecurrence:
        """See `Layers.recurrence`."""
        return FlaRecurrence.of(plan, kernel_size, device, self._kernels)


@dataclass(frozen=True, kw_only=True, eq=False)
class Sequences:
    """Stretches of rows that follow each other: where each begins and, last, where they end; also on the host."""

    bounds: Tensor
    bounds_on_host: Tensor

    @classmethod
    def of(cls, lengths: Sequence[int], device: torch.device) -> Sequences:
        """Of that many rows each."""
        bounds = torch.from_numpy(np.cumsum([0, *lengths], dtype=np.int64))
        return cls(bounds=bounds.to(device), bounds_on_host=bounds)

    @property
    def named(self) -> dict[str, Tensor]:
        """As the library's functions take them."""
        return {"cu_seqlens": self.bounds, "cu_seqlens_cpu": self.bounds_on_host}


@dataclass(frozen=True, kw_only=True, eq=False)
class FlaRecurrence:
    """See `Recurrence`.

    Attributes:
        kernels: The library's.
        plan: The pack.
        kernel_size: Of the short convolutions.
        device: Where the rows are.
        sequences: All runs, in row order.
        tails_RW: The rows before each run on its path, oldest first, -1 where there is none.
        levels: The runs of each level as sequences, laid level by level.
        sizes: Rows of each level.
        order_T: The rows, laid level by level; None where they lie so.
        inverse_T: Where each row lies then.
    """

    kernels: Kernels
    plan: Plan
    kernel_size: int
    device: torch.device
    sequences: Sequences
    tails_RW: Tensor
    levels: tuple[Sequences, ...]
    sizes: list[int]
    order_T: Tensor | None
    inverse_T: Tensor | None

    @classmethod
    def of(cls, plan: Plan, kernel_size: int, device: torch.device, kernels: Kernels) -> FlaRecurrence:
        """Lowers a pack."""
        runs = plan.runs
        lengths = [[runs.runs[run].stop - runs.runs[run].start for run in level] for level in runs.levels]
        order_T = np.concatenate(
            [np.arange(runs.runs[r].start, runs.runs[r].stop) for level in runs.levels for r in level]
        )
        lies_so = bool((order_T[1:] > order_T[:-1]).all())
        ancestors_WT = ancestor_rows(plan.predecessors_T, kernel_size + 1)
        tails_WR = ancestors_WT[:0:-1, [run.start for run in runs.runs]]
        return cls(
            kernels=kernels,
            plan=plan,
            kernel_size=kernel_size,
            device=device,
            sequences=Sequences.of([run.stop - run.start for run in runs.runs], device),
            tails_RW=torch.from_numpy(np.ascontiguousarray(tails_WR.T)).to(device),
            levels=tuple(Sequences.of(level, device) for level in lengths),
            sizes=[sum(level) for level in lengths],
            order_T=None if lies_so else torch.from_numpy(order_T).to(device),
            inverse_T=None if lies_so else torch.from_numpy(np.argsort(order_T)).to(device),
        )

    def recur(self, projected: RecurrentLayer) -> Tensor:
        """See `Recurrence.recur`."""
        if not isinstance(projected, DeltaLayer):
            return self._plain.recur(projected)
        mixed_TC = reordered(self._convolved(projected), self.order_T, self.inverse_T)
        decay_TH = reordered(projected.log_decay_TH, self.order_T, self.inverse_T)
        beta_TH = reordered(projected.beta_TH, self.order_T, self.inverse_T)
        finals: dict[int, Tensor] = {}
        outs, levels = [], self.plan.runs.levels
        pieces = zip(*(x.split(self.sizes) for x in (mixed_TC, decay_TH, beta_TH)), strict=True)
        for level, sequences, (mixed_NC, decay_NH, beta_NH) in zip(levels, self.levels, pieces, strict=True):
            q_NJK, k_NJK, v_NHV = projected.parts(mixed_NC)
            out_1NHV, final_BHKV = self.kernels.chunk_gated_delta_rule(
                *(x[None] for x in (q_NJK, k_NJK, v_NHV, decay_NH, beta_NH)),
                initial_state=self._initial(level, finals),
                output_final_state=True,
                use_qk_l2norm_in_kernel=True,
                **sequences.named,
            )
            outs.append(out_1NHV[0])
            finals.update(zip(level, final_BHKV.unbind(), strict=True))
        return reordered(torch.cat(outs), self.inverse_T, self.order_T)

    @cached_property
    def _plain(self) -> Recurrence:
        return PlainLayers().recurrence(self.plan, self.kernel_size, self.device)

    def _convolved(self, projected: DeltaLayer) -> Tensor:
        columns_TC = projected.columns_TC
        tails_RWC = gather_columns(columns_TC, self.tails_RW.flatten()).unflatten(0, self.tails_RW.shape)
        mixed_1TC, _ = self.kernels.causal_conv1d(
            x=columns_TC[None],
            weight=projected.weight_CW,
            initial_state=tails_RWC.mT.contiguous(),
            activation="silu",
            **self.sequences.named,
        )
        return mixed_1TC[0]

    def _initial(self, level: Sequence[int], finals: dict[int, Tensor]) -> Tensor | None:
        """The states that a level's runs begin with; None for zeros."""
        parents = [self.plan.runs.runs[run].parent for run in level]
        if all(
            parent < 0 for parent in parents
        ):  # A level's parents all lie one level above, so it is all or none.
            return None
        return torch.stack([hand_over(finals[parent]) for parent in parents])
