"""Paged attention of a step by our own kernels: each stored key is read once for all rows that see it.

Letters: T rows of the step, S slots of the pool, H query heads, G key/value heads, D head dimension, P parts, Q queries
(a row at a shift).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, fields
from typing import Any

import numpy as np
import torch
import triton
from torch import Tensor

from octopus.attention.dag.boxes import boxes
from octopus.attention.dag.groups import Sight, SlotsOf, groups
from octopus.attention.dag.paged_kernels import attend_tiles, join_parts
from octopus.attention.dag.tiles import Costs, TilePlan, tile
from octopus.attention.libraries.rows import Angles, sum_rotated
from octopus.attention.rope import Rope

PARTS = 64  # Whose log-sum-exps are read at once.


@dataclass(frozen=True, kw_only=True, slots=True)
class TileShape:
    """How tiles run.

    Attributes:
        few_m: Rows of a product (readers times the query heads that share a key/value head), few readers.
        many_m: Of all others.
        block: Keys of a product, where they lie side by side.
        singles: Keys of a product, where each has an address of its own: those take registers.
        warps: Of a program.
        stages: Of the pipeline that loads keys and values.
    """

    few_m: int
    many_m: int
    block: int
    singles: int
    warps: int
    stages: int


def tile_shape(head_dim: int) -> TileShape:
    """A fixed table, since tuning at run time costs seconds a shape."""
    block, singles, stages = (128, 32, 3) if head_dim <= 64 else (64, 32, 3) if head_dim <= 128 else (64, 16, 2)
    return TileShape(few_m=16, many_m=128, block=block, singles=singles, warps=8, stages=stages)


@dataclass(frozen=True, kw_only=True, eq=False)
class PagedPass:
    """A step lowered for one model and device: made once a step, used by every layer.

    Attributes:
        tensors: The arrays of the tile plan by name, on the device.
        shape: How the tiles run.
        angles: Of each query: its row's position less its shift.
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
            programs: How many programs share the work: those that run at once.
        """
        share, shape = heads // kv_heads, tile_shape(head_dim)
        costs = Costs(
            most_readers=shape.many_m // share, few_readers=shape.few_m // share, block=shape.block
        )
        found = groups(sights, slots_of)
        plan = tile(found, len(positions_T), programs=max(1, programs // kv_heads), costs=costs)
        seen_from_Q = positions_T[plan.query_row_Q] - plan.query_shift_Q
        arrays = {field.name: getattr(plan, field.name) for field in fields(TilePlan)}
        return cls(
            tensors={name: torch.from_numpy(array).to(device) for name, array in arrays.items()},
            shape=shape,
            angles=Angles.of(rope, seen_from_Q, device, torch.float32),
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
            scale: Factor of the scores, positive.
        """
        heads, rows, dim = q_HTD.shape
        shape, of, parts = self.shape, self.tensors, len(self.tensors["parts_P"])
        part_PHD = q_HTD.new_empty((parts, heads, dim))
        part_lse_PH = q_HTD.new_empty((parts, heads), dtype=torch.float32)
        widths: dict[str, Any] = {"DIM": dim, "WIDTH": triton.next_power_of_2(dim)}
        if parts:
            queries, kv_heads = len(of["query_row_Q"]), keys_SGD.shape[1]
            q_GQSD = q_HTD.new_empty((kv_heads, queries, self.share, dim))
            sum_rotated([q_HTD], self.angles, out_HND=q_GQSD.transpose(1, 2), rows_N=of["query_row_Q"])
            descriptors = [boxes(q_GQSD.flatten(1, 2), rows) for rows in (shape.few_m, shape.many_m)]
            descriptors += [boxes(store_SGD.transpose(0, 1), shape.block) for store_SGD in (keys_SGD, values_SGD)]
            attend_tiles[(kv_heads, len(of["item_starts_W"]) - 1)](
                *descriptors, keys_SGD, values_SGD, part_PHD, part_lse_PH, of["blocks_B"], of["slots_K"],
                of["items_I7"], of["item_starts_W"], of["part_stop_P"], scale, *keys_SGD.stride()[:2],
                *values_SGD.stride()[:2], heads, SHARE=self.share, **widths, FEW_M=shape.few_m,
                MANY_M=shape.many_m, BLOCK_N=shape.block, SINGLE_N=shape.singles, num_warps=shape.warps,
                num_stages=shape.stages,
            )  # fmt: skip
        out_HTD = torch.empty_like(q_HTD)
        lse_HT = q_HTD.new_empty((heads, rows), dtype=torch.float32)
        if rows:
            join_parts[(rows, heads)](
                part_PHD, part_lse_PH, of["parts_P"], of["part_starts_T"], out_HTD, lse_HT, heads,
                *out_HTD.stride()[:2], lse_HT.stride(0), **widths, BLOCK_P=PARTS, num_warps=1,
            )  # fmt: skip
        return out_HTD, lse_HT
