"""A plan as one call of cuDNN-frontend's flexible attention, which takes key intervals of each row.

With head dimension 256 the kernel has a faster backward for models whose query heads do not share key/value heads.
Sharing is only a way to count rows: the query heads of a group, laid end to end, are one head of more rows over the
same keys. So they are laid end to end there.

Letters: T rows of the pack, L keys, H = G * R query heads, G key/value heads, R that share one, M = T or R * T rows of
each head as laid, J = H or G heads as laid, D head dimension, E endpoints.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from importlib.util import find_spec
from typing import Any

import torch
from torch import Tensor

from octopus.attention.libraries.engines import needs
from octopus.attention.libraries.intervals import row_endpoints
from octopus.attention.libraries.key_table import KeyTable
from octopus.attention.libraries.rows import Angles, sum_rotated

STACKED_DIM = 256  # The head dimension at which laying heads end to end pays.


def unavailable() -> str | None:
    """Why this machine cannot run it, None if it can."""
    installed = find_spec("cudnn") is not None and find_spec("cudnn.flex_attention") is not None
    return needs(9 if installed else None, "the package nvidia-cudnn-frontend (1.32 or newer)")


@dataclass(frozen=True, kw_only=True, eq=False)
class IntervalKernel:
    """Attention over a key table in one call; see `libraries.kernel.Kernel`."""

    ends_ET: Tensor
    blind_N: Tensor
    unseen_N: Tensor
    plans: dict[tuple[object, ...], Any] = field(default_factory=dict)

    @classmethod
    def of(cls, table: KeyTable, device: torch.device) -> IntervalKernel:
        """Lowers a key table to endpoints."""
        ends, blind, unseen = (
            torch.from_numpy(x).to(device) for x in (row_endpoints(table), table.blind, table.unseen)
        )
        return cls(ends_ET=ends, blind_N=blind, unseen_N=unseen)

    def forward(self, q_HTD: Tensor, k_GLD: Tensor, v_GLD: Tensor, scale: float) -> tuple[Tensor, Tensor]:
        """See `Kernel.forward`."""
        import cudnn.flex_attention as flex

        heads, rows, _ = q_HTD.shape
        q_JMD = _laid(q_HTD, len(k_GLD))
        q, k, v = (_as_bshd(x) for x in (q_JMD, *self._selected(k_GLD, v_GLD)))
        out = torch.empty(q.shape, dtype=q.dtype, device=q.device)
        lse_JM = q.new_empty((1, q.shape[2], q.shape[1]), dtype=torch.float32)
        plan = self._plan(flex, q, k, v)
        call = flex.FlexAttentionFwd(q, k, v, out, plan, lse_JM)
        call.check_support()
        call.compile()
        call.execute(q, k, v, out, plan, lse_JM, workspace=_workspace(call, q), softmax_scale=scale)
        # Rows of all heads side by side, which is how a model's next layer reads them.
        out_HTD = out[0].transpose(0, 1).unflatten(1, (-1, rows)).flatten(0, 1)
        out_HTD = out_HTD.transpose(0, 1).contiguous().transpose(0, 1)
        lse_HT = lse_JM.view(heads, rows)
        if len(self.blind_N):
            out_HTD.index_fill_(1, self.blind_N, 0)
            lse_HT.index_fill_(1, self.blind_N, -torch.inf)
        return out_HTD, lse_HT

    def backward(
        self,
        d_out_HTD: Tensor,
        q_HTD: Tensor,
        k_GLD: Tensor,
        v_GLD: Tensor,
        out_HTD: Tensor,
        lse_HT: Tensor,
        scale: float,
        angles: Angles,
    ) -> tuple[Tensor, Tensor, Tensor]:
        """See `Kernel.backward`."""
        import cudnn.flex_attention as flex

        groups = len(k_GLD)
        if len(self.blind_N):
            d_out_HTD = d_out_HTD.index_fill(1, self.blind_N, 0)
            lse_HT = lse_HT.index_fill(1, self.blind_N, 0)
        q, out, d_out = (_as_bshd(_laid(x, groups)) for x in (q_HTD, out_HTD, d_out_HTD))
        k, v = (_as_bshd(x) for x in self._selected(k_GLD, v_GLD))
        lse = lse_HT.reshape(1, q.shape[2], q.shape[1])
        dq, dk, dv = (torch.empty_like(x) for x in (q, k, v))
        plan = self._plan(flex, q, k, v)
        call = flex.FlexAttentionBwd(
            q, k, v, out, d_out, lse, dq, dk, dv, plan, deterministic=torch.are_deterministic_algorithms_enabled()
        )
        call.check_support()
        call.compile()
        workspace = _workspace(call, q)
        call.execute(q, k, v, out, d_out, lse, dq, dk, dv, plan, workspace=workspace, softmax_scale=scale)
        dq_HTD = dq[0].transpose(0, 1).view(q_HTD.shape)
        if len(self.blind_N):
            dq_HTD.index_fill_(1, self.blind_N, 0)
        dk_GLD, dv_GLD = dk[0].transpose(0, 1), dv[0].transpose(0, 1)
        for x_GLD in (dk_GLD, dv_GLD):
            if len(self.unseen_N):
                x_GLD.index_fill_(1, self.unseen_N, 0)
        if angles.cos_NR.shape[1]:
            dq_HTD = sum_rotated([dq_HTD], angles, out_HND=torch.empty_like(dq_HTD), back=True)
        return dq_HTD, dk_GLD, dv_GLD

    def _selected(self, *keys_GLD: Tensor) -> list[Tensor]:
        """Keys that nobody sees replaced by 0: the kernel multiplies what it hides by 0, and 0 times NaN is NaN."""
        if not len(self.unseen_N):
            return list(keys_GLD)
        return [x_GLD.index_fill(1, self.unseen_N, 0) for x_GLD in keys_GLD]

    def _plan(self, flex: Any, q: Tensor, k: Tensor, v: Tensor) -> Any:
        key = (q.shape, k.shape, q.dtype)
        if key not in self.plans:
            times = q.shape[1] // self.ends_ET.shape[1]
            ends_1EM = self.ends_ET.repeat(1, times)[None].contiguous()
            self.plans[key] = flex.create_mask_plan(ends_1EM, q, k, v, build_backward=True)
        return self.plans[key]


def _laid(x_HTD: Tensor, kv_heads: int) -> Tensor:
    """The query heads of a group end to end where that pays, `x_JMD`."""
    heads, _, dim = x_HTD.shape
    if heads == kv_heads or dim != STACKED_DIM or torch.are_deterministic_algorithms_enabled():
        return x_HTD
    return x_HTD.reshape(kv_heads, -1, dim)


def _as_bshd(x_JMD: Tensor) -> Tensor:
    return x_JMD.transpose(0, 1)[None]


def _workspace(call: Any, like: Tensor) -> Tensor | None:
    return torch.empty(call.workspace_size, dtype=torch.uint8, device=like.device) if call.workspace_size else None
