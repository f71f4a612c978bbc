"""Paged attention of a step by our own kernels: each stored key is read once for all rows that see it.

Letters: T rows of the step, S slots of the pool, H query heads, G key/value heads, D head dimension, P parts, R half of
the rotary dimensions, V views (distinct pairs of a row and a shift).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, fields
from typing import Any

import numpy as np
import torch
import triton
from torch import Tensor

from octopus.attention.dag.groups import Sight, SlotsOf, groups
from octopus.attention.dag.paged_kernels import attend_tiles, join_parts
from octopus.attention.dag.tiles import TilePlan, tile
from octopus.attention.libraries.rows import Angles, rotated
from octopus.attention.rope import Rope

FEWEST_KEYS = 256
"""Of a tile. Of each reader and query head it writes D float32 numbers, read again: its keys must outweigh those."""
PARTS = 16  # Joined at once.


@dataclass(frozen=True, kw_only=True, slots=True)
class TileShape:
    """How tiles run: rows of a product (readers times the query heads that share a key/value head), and its keys.

    Attributes:
        few_m, few_n: Of a tile with few readers.
        many_m, many_n: Of all others.
        warps: Of a program.
        stages: Of the pipeline that loads keys and values.
    """

    few_m: int
    few_n: int
    many_m: int
    many_n: int
    warps: int
    stages: int


def tile_shape(head_dim: int) -> TileShape:
    """A fixed table, since tuning at run time costs seconds a shape."""
    few_n, many_n, stages = (128, 128, 3) if head_dim <= 64 else (128, 64, 3) if head_dim <= 128 else (64, 32, 4)
    return TileShape(few_m=16, few_n=few_n, many_m=128, many_n=many_n, warps=8, stages=stages)


@dataclass(frozen=True, kw_only=True, eq=False)
class PagedPass:
    """A step lowered for one model and device: made once a step, used by every layer.

    Attributes:
        tensors: The arrays of the tile plan by name, on the device.
        shape: How the tiles run.
        angles: Of each view: its row's position less its shift.
        share: Query heads of a key/value head.
    """

    tensors: dict[str, Tensor]
    shape: TileShape
    angles: Angles
    share: int

    @classmethod
    def of(
        cls,
        sights: Sequence[Sight],
        slots_of: SlotsOf,
        positions_T: np.ndarray,
        *,
        rope: Rope | None,
        heads: int,
        kv_heads: int,
        head_dim: int,
        device: torch.device,
        programs: int,
    ) -> PagedPass:
        """Lowers what the rows of a step see.

        Args:
            sights: Who sees what.
            slots_of: Where it lies.
            positions_T: Own position of each row.
            rope: Rotary embedding, None for a model without positions.
            heads, kv_heads, head_dim: Of the model.
            device: Where the pool is.
            programs: How many programs the work is cut into at least, where it is large enough.
        """
        share, shape = heads // kv_heads, tile_shape(head_dim)
        found, most_readers = groups(sights, slots_of), shape.many_m // share
        work = sum(len(group.slots_K) * -(-len(group.readers) // most_readers) for group in found) * kv_heads
        plan = tile(found, len(positions_T), most_readers=most_readers, most_keys=_most_keys(work, programs))
        seen_from_V = positions_T[plan.view_row_V] - plan.view_shift_V
        arrays = {field.name: getattr(plan, field.name) for field in fields(TilePlan)}
        return cls(
            tensors={name: torch.from_numpy(array).to(device) for name, array in arrays.items()},
            shape=shape,
            angles=Angles.of(rope, seen_from_V, device, torch.float32),
            share=share,
        )

    def attend(
        self, q_HTD: Tensor, keys_SGD: Tensor, values_SGD: Tensor, *, scale: float
    ) -> tuple[Tensor, Tensor]:
        """`out_HTD` in q's dtype and `lse_HT`, float32, natural log; 0 and -inf for a row that sees nothing.

        Args:
            q_HTD: Queries, not rotated.
            keys_SGD: Stored keys, each rotated to its own position; the step's own are already written.
            values_SGD: Stored values.
            scale: Factor of the scores.
        """
        heads, rows, dim = q_HTD.shape
        shape, of, parts = self.shape, self.tensors, len(self.tensors["parts_P"])
        part_PHD = q_HTD.new_empty((parts, heads, dim), dtype=torch.float32)
        part_lse_PH = q_HTD.new_empty((parts, heads), dtype=torch.float32)
        widths: dict[str, Any] = {"DIM": dim, "WIDTH": triton.next_power_of_2(dim)}
        if parts:
            q_HVD = rotated(q_HTD, self.angles, rows_N=of["view_row_V"])
            attend_tiles[(keys_SGD.shape[1], len(of["items_I5"]))](
                q_HVD, keys_SGD, values_SGD, part_PHD, part_lse_PH, of["slots_K"], of["items_I5"],
                of["reader_view_R"], of["reader_stop_R"], scale, *q_HVD.stride()[:2], *keys_SGD.stride()[:2],
                *values_SGD.stride()[:2], heads, SHARE=self.share, **widths,
                FEW_M=shape.few_m, FEW_N=shape.few_n, MANY_M=shape.many_m, MANY_N=shape.many_n,
                num_warps=shape.warps, num_stages=shape.stages,
            )  # fmt: skip
        out_HTD = torch.empty_like(q_HTD)
        lse_HT = q_HTD.new_empty((heads, rows), dtype=torch.float32)
        if rows:
            join_parts[(rows, heads)](
                part_PHD, part_lse_PH, of["parts_P"], of["part_starts_T"], out_HTD, lse_HT, heads,
                *out_HTD.stride()[:2], lse_HT.stride(0), **widths, BLOCK_P=PARTS,
            )  # fmt: skip
        return out_HTD, lse_HT


def _most_keys(work: int, programs: int) -> int:
    """Keys of a tile, so that there are about `programs` tiles; no fewer than pay for a part's trip through memory."""
    return max(FEWEST_KEYS, -(-work // programs))
