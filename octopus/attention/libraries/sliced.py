"""A plan as dense library calls, joined by log-sum-exp in one pass over the rows.

Letters: T rows of the pack, L keys, H query heads, G key/value heads, D head dimension, B blocks of a call,
N rows of a block, K keys of a block.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from octopus.attention.libraries.calls import Call, calls
from octopus.attention.libraries.engines import Engine
from octopus.attention.libraries.key_table import KeyTable
from octopus.attention.libraries.rows import Angles, joined, sum_rotated
from octopus.attention.libraries.stretches import Stretch, stretches


@dataclass(frozen=True, kw_only=True, eq=False)
class SlicedKernel:
    """Attention over a key table by one engine; see `libraries.kernel.Kernel`."""

    engine: Engine
    calls: tuple[Call, ...]
    stretches: tuple[Stretch, ...]
    blocks: tuple[tuple[int, int, int], ...]  # Of each span of `stretches`: call, block, first row.

    @classmethod
    def of(cls, engine: Engine, table: KeyTable) -> SlicedKernel:
        """Lowers a key table to calls."""
        made = calls(table.slices)
        blocks = tuple(
            (number, block, call.queries.start + block * call.queries.step)
            for number, call in enumerate(made)
            for block in range(call.queries.count)
        )
        spans = [(first, first + made[number].queries.rows) for number, _, first in blocks]
        return cls(engine=engine, calls=made, stretches=tuple(stretches(table.length, spans)), blocks=blocks)

    def forward(self, q_HTD: Tensor, k_GLD: Tensor, v_GLD: Tensor, scale: float) -> tuple[Tensor, Tensor]:
        """See `Kernel.forward`."""
        parts = [self._forward(call, q_HTD, k_GLD, v_GLD, scale) for call in self.calls]
        # Rows of all heads side by side, which is how a model's next layer reads them.
        out_THD = q_HTD.new_empty((q_HTD.shape[1], q_HTD.shape[0], q_HTD.shape[2]))
        out_HTD = out_THD.transpose(0, 1)
        lse_dtype = parts[0][1].dtype if parts else torch.promote_types(q_HTD.dtype, torch.float32)
        lse_HT = torch.empty(q_HTD.shape[:2], dtype=lse_dtype, device=q_HTD.device)
        for piece in self.stretches:
            rows = slice(piece.start, piece.stop)
            found = [
                (parts[call][0][block, :, at], parts[call][1][block, :, at]) for call, block, at in self._places(piece)
            ]
            joined(found, out_HND=out_HTD[:, rows], lse_HN=lse_HT[:, rows])
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
        dk_GLD = torch.zeros_like(k_GLD, dtype=lse_HT.dtype)
        dv_GLD = torch.zeros_like(v_GLD, dtype=lse_HT.dtype)
        parts = []
        for call in self.calls:
            d_out, q, out, lse = (_turn(call, call.queries.of(x)) for x in (d_out_HTD, q_HTD, out_HTD, lse_HT))
            k, v = (_turn(call, call.keys.of(x)) for x in (k_GLD, v_GLD))
            causal = call.causal or call.mirrored
            dq, dk, dv = self.engine.backward(d_out, q, k, v, out, lse, causal=causal, scale=scale)
            parts.append(_turn(call, dq))
            call.keys.of(dk_GLD).add_(_turn(call, dk))
            call.keys.of(dv_GLD).add_(_turn(call, dv))
        dq_HTD = torch.empty_like(q_HTD)
        for piece in self.stretches:
            target_HND = dq_HTD[:, piece.start : piece.stop]
            found = [parts[call][block, :, at] for call, block, at in self._places(piece)]
            if found:
                sum_rotated(found, angles.part(piece.start, piece.stop), out_HND=target_HND, back=True)
            else:
                target_HND.zero_()
        return dq_HTD, dk_GLD, dv_GLD

    def _forward(
        self, call: Call, q_HTD: Tensor, k_GLD: Tensor, v_GLD: Tensor, scale: float
    ) -> tuple[Tensor, Tensor]:
        q, k, v = (_turn(call, x) for x in (call.queries.of(q_HTD), call.keys.of(k_GLD), call.keys.of(v_GLD)))
        out_BHND, lse_BHN = self.engine.forward(q, k, v, causal=call.causal or call.mirrored, scale=scale)
        return _turn(call, out_BHND), _turn(call, lse_BHN)

    def _places(self, piece: Stretch) -> Sequence[tuple[int, int, slice]]:
        """Which call and block each part of a stretch comes from, and where it lies in the block."""
        found = [self.blocks[span] for span in piece.spans]
        return [(call, block, slice(piece.start - first, piece.stop - first)) for call, block, first in found]


def _turn(call: Call, x_BHNX: Tensor) -> Tensor:
    """A mirrored block read backwards is causal; its results are read backwards again."""
    return x_BHNX.flip(2) if call.mirrored else x_BHNX
