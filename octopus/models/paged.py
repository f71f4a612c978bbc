"""The context of a rollout step: keys, values and states come from a store and go back to it.

Letters: T rows, R runs, S columns that a convolution may read, X columns kept of each path, C channels, Z state slots,
H query or value heads, G key/value heads, D head dimension, K and V key and value dimension of a recurrent head.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from octopus.attention.libraries.kernel import TRITON
from octopus.attention.paged import StepIndex, StepRows, attend_paged, write_paged
from octopus.attention.rope import Rope
from octopus.attention.step_plan import StepPlan
from octopus.core.storage.kv import KVStorage
from octopus.models.context import RecurrentLayer
from octopus.models.recurrent import in_row_order, scan_batch
from octopus.models.rotary import Rotary
from octopus.models.short_conv import convolved
from octopus.models.state_index import StateIndex

if TYPE_CHECKING:
    from octopus.attention.dag.paged import PagedPass


@dataclass(frozen=True, kw_only=True, eq=False)
class PagedContext:
    """Attention and scans of one step over a store, in place. Every layer must pass exactly once.

    In each layer all keys and values are written before any row attends, and all states are read before any is
    written: a run sees what another run of the step wrote, but never starts from another run's new state.

    Attributes:
        step: The batch.
        storage: Where its threads' keys, values and states live.
        rotaries: Rotary embedding of each layer.
        ranks: For each layer of the model its place in the store, among layers of its kind.
        backend: What computes attention, of `PAGED_BACKENDS`. A windowed prefill is always `torch`'s.
    """

    step: StepPlan
    storage: KVStorage
    rotaries: Sequence[Rotary]
    ranks: Sequence[int]
    backend: str

    def attend(
        self, layer: int, q_HTD: Tensor, k_GTD: Tensor, v_GTD: Tensor, *, scale: float, window: int | None
    ) -> Tensor:
        """See `Context.attend`."""
        rank = self.ranks[layer]
        keys_SGD, values_SGD = self.storage.keys[rank], self.storage.values[rank]
        rotary = self.rotaries[layer]
        write_paged(keys_SGD, values_SGD, k_GTD, v_GTD, rows=self._rows, rope=rotary.rope)
        q_HTD = rotary.weighted(q_HTD)
        made = self._pass(window, rotary.rope, q_HTD) if self.backend == TRITON else None
        if made is not None:
            return made.attend(q_HTD, keys_SGD, values_SGD, scale=scale)[0]
        index = self._index(window)
        return attend_paged(q_HTD, keys_SGD, values_SGD, index=index, rope=rotary.rope, scale=scale)

    def recur(self, layer: int, projected: RecurrentLayer) -> Tensor:
        """See `Context.recur`."""
        rank = self.ranks[layer]
        mixed_TC = self._convolve(self.storage.conv[rank], projected)
        return self._scan(self.storage.recurrent[rank], projected, mixed_TC)

    def _convolve(self, conv_ZXC: Tensor, projected: RecurrentLayer) -> Tensor:
        """Convolves the new columns behind each run's stored ones, and stores each run's last columns."""
        states = self._states
        new_TC = projected.columns_TC
        stored_SC = conv_ZXC[states.read_R].flatten(0, 1).to(new_TC.dtype)
        columns_SC = torch.cat((new_TC, stored_SC, new_TC.new_zeros(1, new_TC.shape[1])))
        shifted = (columns_SC[taps_T] for taps_T in states.taps_WT)
        mixed_TC = convolved(shifted, projected.weight_CW, projected.bias_C)
        conv_ZXC.index_copy_(0, states.written_N, columns_SC[states.tails_NX].to(conv_ZXC.dtype))
        return mixed_TC

    def _scan(self, recurrent_ZHKV: Tensor, projected: RecurrentLayer, mixed_TC: Tensor) -> Tensor:
        """Scans each run from its stored state, and stores the state it ends with."""
        states, inputs = self._states, projected.inputs(mixed_TC)
        outs, finals = [], []
        for batch, part in zip(states.batches, states.initial(recurrent_ZHKV).split(states.sizes), strict=True):
            out_NHV, final_BHKV = scan_batch(inputs, batch, part)
            outs.append(out_NHV)
            finals.append(final_BHKV)
        states.keep(recurrent_ZHKV, finals)
        return in_row_order(outs, states.batches)

    @cached_property
    def _rows(self) -> StepRows:
        return StepRows.of(self.step, self.storage.keys.device)

    def _index(self, window: int | None) -> StepIndex:
        """What rows see through a window, made at the first layer that has it."""
        if window not in self._indices:
            self._indices[window] = StepIndex.of(self.step, self.storage.keys.device, window=window)
        return self._indices[window]

    def _pass(self, window: int | None, rope: Rope | None, q_HTD: Tensor) -> PagedPass | None:
        """The step as our kernels take it, made at the first layer of its kind; None if they cannot compute it."""
        from octopus.attention.dag.steps import step_pass  # Triton is an extra.

        if (window, rope) not in self._passes:
            self._passes[window, rope] = step_pass(
                self.step, window=window, rope=rope, heads=len(q_HTD), kv_heads=self.storage.shape.kv_heads,
                head_dim=q_HTD.shape[-1], device=q_HTD.device,
            )  # fmt: skip
        return self._passes[window, rope]

    @cached_property
    def _passes(self) -> dict[tuple[int | None, Rope | None], PagedPass | None]:
        return {}

    @cached_property
    def _indices(self) -> dict[int | None, StepIndex]:
        return {}

    @cached_property
    def _states(self) -> StateIndex:
        return StateIndex(self.step, self.storage.shape.conv_columns, self.storage.keys.device)
