"""What travels as one keyword argument through the library's forward, and what it must offer to our layers.

Letters: T rows, H query heads, G key/value heads, D head dimension, C convolution channels, W kernel size,
J key heads and Hv value heads of a recurrent layer, K and V their dimensions.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

from torch import Tensor

from octopus.models.gated_delta import DeltaInputs
from octopus.models.recurrent import RuleInputs


class RecurrentLayer(Protocol):
    """One recurrent layer's projections of the whole row: what its convolution and scan start from."""

    @property
    def columns_TC(self) -> Tensor:
        """What is convolved."""
        ...

    @property
    def weight_CW(self) -> Tensor:
        """The convolution's kernel."""
        ...

    @property
    def bias_C(self) -> Tensor | None:
        """Its bias, if it has one."""
        ...

    def inputs(self, mixed_TC: Tensor) -> RuleInputs:
        """What the rule reads, from the convolution's output."""
        ...


@dataclass(frozen=True, kw_only=True, eq=False)
class DeltaLayer:
    """One Gated DeltaNet layer's projections of the whole row. See `RecurrentLayer`.

    Attributes:
        columns_TC: queries, keys and values side by side, before the convolution.
        weight_CW: the convolution's kernel.
        log_decay_TH: logarithm of the decay of each value head.
        beta_TH: write strength of each value head.
        key_heads: number of key heads; each serves a group of consecutive value heads.
        key_dim: dimension of a key head.
        value_dim: dimension of a value head.
    """

    columns_TC: Tensor
    weight_CW: Tensor
    log_decay_TH: Tensor
    beta_TH: Tensor
    key_heads: int
    key_dim: int
    value_dim: int

    @property
    def bias_C(self) -> None:
        """There is none."""

    def parts(self, mixed_TC: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """The convolution's output as queries [T, J, K], keys [T, J, K] and values [T, Hv, V]."""
        keys, values = self.key_heads * self.key_dim, self.beta_TH.shape[-1] * self.value_dim
        q_TC, k_TC, v_TC = mixed_TC.split((keys, keys, values), dim=-1)
        return (
            q_TC.unflatten(-1, (self.key_heads, self.key_dim)),
            k_TC.unflatten(-1, (self.key_heads, self.key_dim)),
            v_TC.unflatten(-1, (-1, self.value_dim)),
        )

    def inputs(self, mixed_TC: Tensor) -> DeltaInputs:
        """See `RecurrentLayer.inputs`; each value head comes with its key head."""
        q_TJK, k_TJK, v_THV = self.parts(mixed_TC)
        value_heads = v_THV.shape[1]
        return DeltaInputs(
            q_XHK=repeat_key_heads(q_TJK, value_heads),
            k_XHK=repeat_key_heads(k_TJK, value_heads),
            v_XHV=v_THV,
            g_XH=self.log_decay_TH,
            beta_XH=self.beta_TH,
        )


def repeat_key_heads(x_TJK: Tensor, value_heads: int) -> Tensor:
    """Gives value head h the key head `h // (Hv // J)`."""
    return x_TJK.repeat_interleave(value_heads // x_TJK.shape[1], dim=1)


class Context(Protocol):
    """Knows who sees whom and whose state continues whose; the layers know weights and nothing else.

    `layer` counts all of the model's layers from 0.
    """

    def attend(
        self, layer: int, q_HTD: Tensor, k_GTD: Tensor, v_GTD: Tensor, *, scale: float, window: int | None
    ) -> Tensor:
        """Attention of every row; q and k arrive unrotated. Returns [H, T, D] in q's dtype.

        With a window a row sees only what stands less than `window` positions before it, itself included.
        """
        ...

    def recur(self, layer: int, projected: RecurrentLayer) -> Tensor:
        """Convolution and scan along every path. Returns [T, Hv, V] in at least the model's dtype."""
        ...
