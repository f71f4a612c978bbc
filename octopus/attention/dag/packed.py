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
from triton.tools.tensor_descriptor import TensorDescriptor

from octopus.attention.dag.boxes import boxes, loadable
from octopus.attention.dag.gradient_kernels import (
    key_gradients,
    query_gradients,
    row_dots,
    sum_slots,
    value_gradients,
)
from octopus.attention.dag.packed_kernels import attend_spans
from octopus.attention.dag.spans import SpanTable, span_table, turned
from octopus.attention.libraries.key_table import KeyTable
from octopus.attention.libraries.rows import Angles, sum_rotated

UNCUT = 1 << 62
MOST_CELLS = 1 << 22
"""Of a key tile: longer prefixes are cut into fixed chunks, so that no program works long after all others."""
ROWS = 16  # Of a program that only adds up or multiplies.


@dataclass(frozen=True, kw_only=True, slots=True)
class Blocks:
    """How a kernel runs.

    Attributes:
        other: Rows of the other side in a product.
        rest: The same where a mask is needed, which takes registers.
        warps: Of a program.
        stages: Of its pipeline.
    """

    other: int
    rest: int
    warps: int
    stages: int

    @property
    def launch(self) -> dict[str, int]:
        """As a launch takes them."""
        return {"OTHER": self.other, "REST": self.rest, "num_warps": self.warps, "num_stages": self.stages}

    def boxes(self, *tensors: Tensor) -> list[TensorDescriptor]:
        """Descriptors of the other side's rows."""
        return [boxes(tensor, self.other) for tensor in tensors]


@dataclass(frozen=True, kw_only=True, slots=True)
class KernelTable:
    """The kernels' blocks for one head dimension: the forward pass and the gradients; `own` rows in every tile."""

    own: int
    forward: Blocks
    queries: Blocks
    keys: Blocks
    values: Blocks


def kernel_table(head_dim: int) -> KernelTable:
    """A fixed table: tuning at run time costs seconds a shape."""
    wide = Blocks(other=128, rest=32, warps=8, stages=3)
    half = Blocks(other=64, rest=32, warps=8, stages=3)
    slim = Blocks(other=32, rest=16, warps=8, stages=3)
    sizes: Mapping[int, KernelTable] = {
        64: KernelTable(own=128, forward=wide, queries=wide, keys=wide, values=wide),
        128: KernelTable(own=128, forward=wide, queries=half, keys=half, values=half),
        256: KernelTable(
            own=128,
            forward=Blocks(other=64, rest=16, warps=8, stages=2),
            queries=slim,
            keys=slim,
            values=slim,
        ),
    }
    return next(table for dim, table in sizes.items() if head_dim <= dim)


@dataclass(frozen=True, kw_only=True, eq=False)
class _Tiles:
    """Tiles and spans of one side, on the device."""

    tiles_N4: Tensor
    spans_S7: Tensor

    @classmethod
    def of(cls, table: SpanTable, device: torch.device) -> _Tiles:
        return cls(
            tiles_N4=torch.from_numpy(table.tiles_N4).to(device),
            spans_S7=torch.from_numpy(table.spans_S7).to(device),
        )

    def __len__(self) -> int:
        return len(self.tiles_N4)


@dataclass(frozen=True, kw_only=True, eq=False)
class DagKernel:
    """Attention over a key table; see `libraries.kernel.Kernel`.

    Attributes:
        blocks: How the kernels run.
        queries, keys: Tiles that own queries, and tiles that own keys.
        owners_E4: First own row, stop own row, first and stop of the stretch's slots in `slots_N`.
        slots_N: The tiles of keys, those of one stretch together, in a fixed order.
    """

    blocks: KernelTable
    queries: _Tiles
    keys: _Tiles
    owners_E4: Tensor
    slots_N: Tensor

    @classmethod
    def of(cls, table: KeyTable, device: torch.device, head_dim: int) -> DagKernel:
        """Cuts a key table into tiles."""
        blocks = kernel_table(head_dim)
        queries = span_table(table.slices, table.length, blocks.own, most_cells=UNCUT)
        keys = span_table(turned(table.slices), len(table.rows_L), blocks.own, most_cells=MOST_CELLS)
        owners_E4, slots_N = _owners(keys.tiles_N4)
        return cls(
            blocks=blocks,
            queries=_Tiles.of(queries, device),
            keys=_Tiles.of(keys, device),
            owners_E4=torch.from_numpy(owners_E4).to(device),
            slots_N=torch.from_numpy(slots_N).to(device),
        )

    def forward(self, q_HTD: Tensor, k_GLD: Tensor, v_GLD: Tensor, scale: float) -> tuple[Tensor, Tensor]:
        """See `Kernel.forward`."""
        heads, rows, dim = q_HTD.shape
        # Rows of all heads side by side, which is how a model's next layer reads them.
        out_HTD = q_HTD.new_empty((rows, heads, dim)).transpose(0, 1)
        lse_HT = q_HTD.new_empty((heads, rows), dtype=torch.float32)
        of, tiles = self.blocks.forward, self.queries
        if rows:
            attend_spans[len(tiles), heads](
                q_HTD, *of.boxes(k_GLD, v_GLD), k_GLD, v_GLD, out_HTD, lse_HT, tiles.tiles_N4, tiles.spans_S7, scale,
                *_strides(q_HTD, k_GLD, v_GLD, out_HTD), lse_HT.stride(0),
                SHARE=heads // len(k_GLD), DIM=dim, OWN=self.blocks.own, **of.launch,
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
        if not loadable(d_out_HTD):  # Nobody chooses how it lies: a sum's is one number, stretched.
            d_out_HTD = d_out_HTD.clone(memory_format=torch.contiguous_format)
        dots_HT = _row_dots(out_HTD, d_out_HTD)
        dq_HTD = self._query_gradients(q_HTD, k_GLD, v_GLD, d_out_HTD, lse_HT, dots_HT, scale, angles)
        dk_GLD = self._key_gradients(q_HTD, k_GLD, v_GLD, d_out_HTD, lse_HT, dots_HT, scale)
        return dq_HTD, dk_GLD, self._value_gradients(q_HTD, k_GLD, d_out_HTD, lse_HT, scale)

    def _query_gradients(
        self, q_HTD: Tensor, k_GLD: Tensor, v_GLD: Tensor, d_out_HTD: Tensor, lse_HT: Tensor, dots_HT: Tensor,
        scale: float, angles: Angles,
    ) -> Tensor:  # fmt: skip
        turns, of, tiles = angles.cos_NR.shape[1] > 0, self.blocks.queries, self.queries
        dq_HTD = torch.empty_like(q_HTD, dtype=torch.float32 if turns else q_HTD.dtype)
        query_gradients[len(tiles), len(q_HTD)](
            q_HTD, *of.boxes(k_GLD, v_GLD), k_GLD, v_GLD, d_out_HTD, lse_HT, dots_HT, dq_HTD, tiles.tiles_N4,
            tiles.spans_S7, scale,
            *_strides(q_HTD, k_GLD, v_GLD, d_out_HTD), lse_HT.stride(0), *_strides(dq_HTD),
            SHARE=len(q_HTD) // len(k_GLD), DIM=q_HTD.shape[2], OWN=self.blocks.own, **of.launch,
        )  # fmt: skip
        return sum_rotated([dq_HTD], angles, out_HND=torch.empty_like(q_HTD), back=True) if turns else dq_HTD

    def _key_gradients(
        self, q_HTD: Tensor, k_GLD: Tensor, v_GLD: Tensor, d_out_HTD: Tensor, lse_HT: Tensor, dots_HT: Tensor,
        scale: float,
    ) -> Tensor:  # fmt: skip
        of, tiles, slots_NGMD = self.blocks.keys, self.keys, self._slots(k_GLD)
        key_gradients[len(tiles), len(k_GLD)](
            *of.boxes(q_HTD, d_out_HTD), q_HTD, k_GLD, v_GLD, d_out_HTD, lse_HT, dots_HT, slots_NGMD, tiles.tiles_N4,
            tiles.spans_S7, scale, len(k_GLD), *_strides(q_HTD, k_GLD, v_GLD, d_out_HTD), lse_HT.stride(0),
            SHARE=len(q_HTD) // len(k_GLD), DIM=q_HTD.shape[2], OWN=self.blocks.own, **of.launch,
        )  # fmt: skip
        return self._summed(slots_NGMD, k_GLD)

    def _value_gradients(
        self, q_HTD: Tensor, k_GLD: Tensor, d_out_HTD: Tensor, lse_HT: Tensor, scale: float
    ) -> Tensor:
        of, tiles, slots_NGMD = self.blocks.values, self.keys, self._slots(k_GLD)
        value_gradients[len(tiles), len(k_GLD)](
            *of.boxes(q_HTD, d_out_HTD), q_HTD, k_GLD, d_out_HTD, lse_HT, slots_NGMD, tiles.tiles_N4, tiles.spans_S7,
            scale, len(k_GLD), *_strides(q_HTD, k_GLD, d_out_HTD), lse_HT.stride(0),
            SHARE=len(q_HTD) // len(k_GLD), DIM=q_HTD.shape[2], OWN=self.blocks.own, **of.launch,
        )  # fmt: skip
        return self._summed(slots_NGMD, k_GLD)

    def _slots(self, k_GLD: Tensor) -> Tensor:
        shape = (len(self.keys), len(k_GLD), self.blocks.own, k_GLD.shape[2])
        return k_GLD.new_empty(shape, dtype=torch.float32)

    def _summed(self, slots_NGMD: Tensor, like_GLD: Tensor) -> Tensor:
        sum_GLD = torch.empty_like(like_GLD, dtype=torch.float32)
        _, kv_heads, block, dim = slots_NGMD.shape
        sum_slots[len(self.owners_E4), kv_heads, block // min(block, ROWS)](
            slots_NGMD, sum_GLD, self.owners_E4, self.slots_N, kv_heads, *_strides(sum_GLD), OWN=block, DIM=dim,
            ROWS=min(block, ROWS),
        )  # fmt: skip
        return sum_GLD


def _strides(*tensors: Tensor) -> list[int]:
    return [stride for tensor in tensors for stride in tensor.stride()[:2]]


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
