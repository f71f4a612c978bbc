"""Attention over a key table by our own kernels: small siblings side by side, one order of every sum.

Letters: T rows of the pack, L keys, H query heads, G key/value heads, D head dimension, N tiles, M rows of a tile, S
spans, E stretches of own rows.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
import torch
import triton
from torch import Tensor

from octopus.attention.dag.packed_kernels import (
    attend_spans,
    key_gradients,
    query_gradients,
    row_dots,
    sum_slots,
)
from octopus.attention.dag.spans import SpanTable, span_table, turned
from octopus.attention.libraries.key_table import KeyTable
from octopus.attention.libraries.rows import Angles, sum_rotated

UNCUT = 1 << 62
MOST_CELLS = 1 << 22
"""Of a key tile: longer prefixes are cut into fixed chunks, so that no program works long after all others."""
ROWS = 16  # Of a program that only adds up or multiplies.


@dataclass(frozen=True, kw_only=True, slots=True)
class Blocks:
    """How a kernel runs: own and other rows of a product, warps and pipeline stages."""

    own: int
    other: int
    warps: int
    stages: int


@dataclass(frozen=True, kw_only=True, slots=True)
class KernelTable:
    """The three kernels' blocks for one head dimension."""

    forward: Blocks
    queries: Blocks
    keys: Blocks


def kernel_table(head_dim: int) -> KernelTable:
    """A fixed table: tuning at run time costs seconds a shape."""
    sizes: Mapping[int, KernelTable] = {
        64: KernelTable(
            forward=Blocks(own=128, other=128, warps=8, stages=3),
            queries=Blocks(own=128, other=64, warps=8, stages=3),
            keys=Blocks(own=128, other=64, warps=8, stages=3),
        ),
        128: KernelTable(
            forward=Blocks(own=128, other=64, warps=8, stages=3),
            queries=Blocks(own=128, other=64, warps=8, stages=3),
            keys=Blocks(own=128, other=32, warps=8, stages=3),
        ),
        256: KernelTable(
            forward=Blocks(own=128, other=32, warps=8, stages=3),
            queries=Blocks(own=128, other=32, warps=8, stages=2),
            keys=Blocks(own=64, other=32, warps=8, stages=2),
        ),
    }
    return next(table for dim, table in sizes.items() if head_dim <= dim)


@dataclass(frozen=True, kw_only=True, eq=False)
class _Side:
    """Tiles and spans of one side, on the device."""

    blocks: Blocks
    tiles_N4: Tensor
    spans_S7: Tensor

    @classmethod
    def of(cls, table: SpanTable, blocks: Blocks, device: torch.device) -> _Side:
        tiles_N4, spans_S7 = (torch.from_numpy(x).to(device) for x in (table.tiles_N4, table.spans_S7))
        return cls(blocks=blocks, tiles_N4=tiles_N4, spans_S7=spans_S7)

    @property
    def launch(self) -> dict[str, int]:
        """Warps and stages, as a launch takes them."""
        return {"num_warps": self.blocks.warps, "num_stages": self.blocks.stages}


@dataclass(frozen=True, kw_only=True, eq=False)
class DagKernel:
    """Attention over a key table; see `libraries.kernel.Kernel`.

    Attributes:
        forward_side, query_side, key_side: Tiles of queries, of queries for their gradient, of keys.
        owners_E4: First own row, stop own row, first and stop of the stretch's slots in `slots_N`.
        slots_N: The key side's tiles, those of one stretch together, in a fixed order.
    """

    forward_side: _Side
    query_side: _Side
    key_side: _Side
    owners_E4: Tensor
    slots_N: Tensor

    @classmethod
    def of(cls, table: KeyTable, device: torch.device, head_dim: int) -> DagKernel:
        """Cuts a key table into tiles."""
        blocks, keys = kernel_table(head_dim), len(table.rows_L)
        forward = span_table(table.slices, table.length, blocks.forward.own, most_cells=UNCUT)
        queries = forward
        if blocks.queries.own != blocks.forward.own:
            queries = span_table(table.slices, table.length, blocks.queries.own, most_cells=UNCUT)
        others = span_table(turned(table.slices), keys, blocks.keys.own, most_cells=MOST_CELLS)
        owners_E4, slots_N = _owners(others.tiles_N4)
        return cls(
            forward_side=_Side.of(forward, blocks.forward, device),
            query_side=_Side.of(queries, blocks.queries, device),
            key_side=_Side.of(others, blocks.keys, device),
            owners_E4=torch.from_numpy(owners_E4).to(device),
            slots_N=torch.from_numpy(slots_N).to(device),
        )

    def forward(self, q_HTD: Tensor, k_GLD: Tensor, v_GLD: Tensor, scale: float) -> tuple[Tensor, Tensor]:
        """See `Kernel.forward`."""
        heads, rows, dim = q_HTD.shape
        # Rows of all heads side by side, which is how a model's next layer reads them.
        out_HTD = q_HTD.new_empty((rows, heads, dim)).transpose(0, 1)
        lse_HT = q_HTD.new_empty((heads, rows), dtype=torch.float32)
        side = self.forward_side
        if rows:
            attend_spans[len(side.tiles_N4), heads](
                q_HTD, k_GLD, v_GLD, out_HTD, lse_HT, side.tiles_N4, side.spans_S7, scale, *q_HTD.stride()[:2],
                *k_GLD.stride()[:2], *v_GLD.stride()[:2], *out_HTD.stride()[:2], lse_HT.stride(0),
                SHARE=heads // len(k_GLD), DIM=dim, BLOCK_M=side.blocks.own, BLOCK_N=side.blocks.other, **side.launch,
            )  # fmt: skip
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
        if not q_HTD.shape[1]:
            return torch.zeros_like(q_HTD), torch.zeros_like(k_GLD), torch.zeros_like(v_GLD)
        d_out_HTD = d_out_HTD if d_out_HTD.stride(-1) == 1 else d_out_HTD.contiguous()
        inputs = (q_HTD, k_GLD, v_GLD, d_out_HTD, lse_HT, _row_dots(out_HTD, d_out_HTD))
        strides = [stride for x in inputs[:4] for stride in x.stride()[:2]]
        shape = {"SHARE": len(q_HTD) // len(k_GLD), "DIM": q_HTD.shape[2]}
        side = self.query_side
        dq_HTD = torch.empty_like(q_HTD, dtype=torch.float32 if angles.cos_NR.shape[1] else q_HTD.dtype)
        query_gradients[len(side.tiles_N4), len(q_HTD)](
            *inputs, dq_HTD, side.tiles_N4, side.spans_S7, scale, *strides, lse_HT.stride(0), *dq_HTD.stride()[:2],
            **shape, BLOCK_M=side.blocks.own, BLOCK_N=side.blocks.other, **side.launch,
        )  # fmt: skip
        if angles.cos_NR.shape[1]:
            dq_HTD = sum_rotated([dq_HTD], angles, out_HND=torch.empty_like(q_HTD), back=True)
        side = self.key_side
        slots = [
            q_HTD.new_empty((len(side.tiles_N4), len(k_GLD), side.blocks.own, q_HTD.shape[2]), dtype=torch.float32)
            for _ in range(2)
        ]
        key_gradients[len(side.tiles_N4), len(k_GLD)](
            *inputs, *slots, side.tiles_N4, side.spans_S7, scale, len(k_GLD), *strides, lse_HT.stride(0),
            **shape, BLOCK_M=side.blocks.other, BLOCK_N=side.blocks.own, **side.launch,
        )  # fmt: skip
        dk_GLD, dv_GLD = (self._summed(slot_NGMD, k_GLD) for slot_NGMD in slots)
        return dq_HTD, dk_GLD, dv_GLD

    def _summed(self, slots_NGMD: Tensor, like_GLD: Tensor) -> Tensor:
        sum_GLD = torch.empty_like(like_GLD, dtype=torch.float32)
        _, kv_heads, block, dim = slots_NGMD.shape
        sum_slots[len(self.owners_E4), kv_heads, block // min(block, ROWS)](
            slots_NGMD, sum_GLD, self.owners_E4, self.slots_N, kv_heads, *sum_GLD.stride()[:2], BLOCK=block, DIM=dim,
            ROWS=min(block, ROWS),
        )  # fmt: skip
        return sum_GLD


def _row_dots(out_HTD: Tensor, d_out_HTD: Tensor) -> Tensor:
    heads, rows, dim = out_HTD.shape
    dots_HT = out_HTD.new_empty((heads, rows), dtype=torch.float32)
    row_dots[triton.cdiv(rows, ROWS), heads](
        out_HTD, d_out_HTD, dots_HT, rows, *out_HTD.stride()[:2], *d_out_HTD.stride()[:2], dots_HT.stride(0),
        DIM=dim, BLOCK=ROWS,
    )  # fmt: skip
    return dots_HT


def _owners(tiles_N4: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Which tiles own the same rows: `first own row, stop, first, stop` into the numbers of tiles that follow."""
    slots_N = np.lexsort((tiles_N4[:, 2], tiles_N4[:, 0]))
    rows, first = np.unique(tiles_N4[slots_N, 0], return_index=True)
    stop = np.append(first[1:], len(slots_N))
    return np.stack((rows, tiles_N4[slots_N[first], 1], first, stop), axis=1).astype(np.int64), slots_N
