"""FlexAttention: a BlockMask and the element mask that it abbreviates. `dump(block_mask, "mask.npz")`."""

from __future__ import annotations

from typing import Any

import numpy as np
from torch.nn.attention.flex_attention import create_mask

TABLES = ("kv_num_blocks", "kv_indices", "full_kv_num_blocks", "full_kv_indices")
MOST_TOKENS = 8192


def dump(block_mask: Any, path: str, batch: int = 0, head: int = 0, **descent: Any) -> None:
    """Writes one batch row and head; beyond 8,192 tokens the table alone. `descent`: document_ids=..., parents=..."""
    tables = {name: getattr(block_mask, name) for name in TABLES}
    arrays = {
        name: table[min(batch, len(table) - 1), min(head, table.shape[1] - 1)].cpu().numpy()
        for name, table in tables.items()
        if table is not None
    }
    queries, keys = block_mask.seq_lengths
    if max(queries, keys) <= MOST_TOKENS:
        mask = create_mask(block_mask.mask_mod, batch + 1, head + 1, queries, keys, block_mask.kv_indices.device)
        arrays["mask"] = mask[-1, -1].cpu().numpy()
    np.savez(path, BLOCK_SIZE=block_mask.BLOCK_SIZE, seq_lengths=(queries, keys), **arrays, **descent)
