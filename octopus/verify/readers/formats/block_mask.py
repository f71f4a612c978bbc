"""FlexAttention's BlockMask, as the tensors of `BlockMask.as_tuple()` under their own names.

`kv_num_blocks` `[B, H, R]` and `kv_indices` `[B, H, R, C]` list the blocks of keys that need the element mask;
`full_kv_num_blocks` and `full_kv_indices` those that are visible as a whole. The element mask itself comes as `mask`.
"""

from __future__ import annotations

import numpy as np

from octopus.verify.facets import BlockTable
from octopus.verify.inputs import Hints, Unreadable
from octopus.verify.readers.bag import Bag
from octopus.verify.readers.part import Format, Part

COUNT, INDICES = "kv_num_blocks", "kv_indices"
FULL_COUNT, FULL_INDICES = "full_kv_num_blocks", "full_kv_indices"
BLOCK_SIZE, LENGTHS = "BLOCK_SIZE", "seq_lengths"
DEFAULT_BLOCK = 128


def read(bag: Bag, hints: Hints) -> list[Part]:
    """One part a batch row. All heads must agree. Indices are passed on as they are, in bounds or not."""
    count_BHR, indices_BHRC = bag.integers(COUNT), bag.integers(INDICES)
    if count_BHR is None and indices_BHRC is None:
        return []
    count_BHR, indices_BHRC = _matching(count_BHR, indices_BHRC, COUNT)
    full_count_BHR, full_BHRC = bag.integers(FULL_COUNT), bag.integers(FULL_INDICES)
    full = full_count_BHR is not None or full_BHRC is not None
    if full:
        full_count_BHR, full_BHRC = _matching(full_count_BHR, full_BHRC, FULL_COUNT)
        if full_count_BHR.shape != count_BHR.shape:
            raise Unreadable(f"{FULL_COUNT} and {COUNT} have shapes {full_count_BHR.shape} and {count_BHR.shape}")
    notes = []
    sizes = bag.integers(BLOCK_SIZE)
    if sizes is None:
        notes.append(f"{BLOCK_SIZE} is missing: blocks of {DEFAULT_BLOCK} were assumed, FlexAttention's default")
        sizes = np.array([DEFAULT_BLOCK])
    if sizes.size not in (1, 2) or sizes.min() < 1:
        raise Unreadable(f"{BLOCK_SIZE} should be one or two sizes from 1 on")
    block_q, block_k = (int(size) for size in np.broadcast_to(sizes.reshape(-1), 2))
    lengths = bag.integers(LENGTHS)
    return [
        Part(
            fields={
                "blocks": BlockTable(
                    block_q=block_q,
                    block_k=block_k,
                    partial_count_R=count_BHR[row, 0],
                    partial_RC=indices_BHRC[row, 0],
                    full_count_R=full_count_BHR[row, 0] if full_count_BHR is not None else None,
                    full_RC=full_BHRC[row, 0] if full_BHRC is not None else None,
                )
            },
            length=None if lengths is None or not lengths.size else int(lengths.reshape(-1)[-1]),
            notes=tuple(notes),
        )
        for row in range(len(count_BHR))
    ]


def _matching(count: np.ndarray | None, indices: np.ndarray | None, name: str) -> tuple[np.ndarray, np.ndarray]:
    """Both with batch and head axes, the same for all heads."""
    if count is None or indices is None or indices.ndim != count.ndim + 1 or indices.shape[:-1] != count.shape:
        raise Unreadable(f"{name} [B, H, R] needs indices [B, H, R, C] beside it")
    if not 1 <= count.ndim <= 3 or not count.size:
        raise Unreadable(f"{name} has shape {count.shape}; it is [B, H, R]")
    missing = (1,) * (3 - count.ndim)
    count_BHR, indices_BHRC = count.reshape(missing + count.shape), indices.reshape(missing + indices.shape)
    if (count_BHR != count_BHR[:, :1]).any() or (indices_BHRC != indices_BHRC[:, :1]).any():
        raise Unreadable(f"{name} differs between heads: give one head at a time")
    return count_BHR, indices_BHRC


FORMAT = Format(
    name="block_mask", names=(COUNT, INDICES, FULL_COUNT, FULL_INDICES, BLOCK_SIZE, LENGTHS), read=read
)
