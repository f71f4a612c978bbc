"""What a Mamba-2 layer hands to its context.

Letters: T rows, C convolution channels, W kernel size, H heads, G groups, K state size, V head dimension.
"""

from __future__ import annotations

from dataclasses import dataclass

from torch import Tensor

from octopus.models.mamba2 import MambaInputs


@dataclass(frozen=True, kw_only=True, eq=False)
class MambaLayer:
    """One Mamba-2 layer's projections of the whole row. See `RecurrentLayer`.

    Attributes:
        columns_TC: values [H, V], keys [G, K] and queries [G, K] side by side, before the convolution.
        weight_CW: the convolution's kernel.
        bias_C: its bias, if it has one.
        log_decay_TH: logarithm of the decay of each head.
        dt_TH: step size of each head.
        skip_H: weight with which a head's values pass by the state.
        groups: number of groups of consecutive heads.
        state_size: K.
    """

    columns_TC: Tensor
    weight_CW: Tensor
    bias_C: Tensor | None
    log_decay_TH: Tensor
    dt_TH: Tensor
    skip_H: Tensor
    groups: int
    state_size: int

    def inputs(self, mixed_TC: Tensor) -> MambaInputs:
        """See `RecurrentLayer.inputs`."""
        keys, heads = self.groups * self.state_size, len(self.skip_H)
        v_TC, k_TC, q_TC = mixed_TC.split((mixed_TC.shape[-1] - 2 * keys, keys, keys), dim=-1)
        return MambaInputs(
            q_XGK=q_TC.unflatten(-1, (self.groups, -1)),
            k_XGK=k_TC.unflatten(-1, (self.groups, -1)),
            v_XHV=v_TC.unflatten(-1, (heads, -1)),
            g_XH=self.log_decay_TH,
            dt_XH=self.dt_TH,
            skip_XH=self.skip_H.expand(len(mixed_TC), heads),
        )
