"""TRL: a padding-free batch, or a row of prefix trees. `dump(collated, "a.npz")` or `dump(row.pack(), "a.npz")`."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

NAMES = ("input_ids", "position_ids", "attention_mask", "labels", "cu_seq_lens_q", "cu_seq_lens_k", "seq_idx")
TREE = ("tree_kv_index", "tree_cu_seqlens_q", "tree_cu_seqlens_k")


def dump(batch: Mapping[str, Any], path: str) -> None:
    """Writes the batch's tensors; of a tree row also the parents, which its depths give (it is in pre-order)."""
    arrays = {name: batch[name].cpu().numpy() for name in (*NAMES, *TREE) if batch.get(name) is not None}
    if TREE[0] in arrays:
        last_at: dict[int, int] = {-1: -1}  # The last row at each depth: the parent is the one a level up.
        parents = []
        for row, depth in enumerate(arrays["position_ids"].reshape(-1).tolist()):
            parents.append(last_at[depth - 1])
            last_at[depth] = row
        arrays["parents"] = np.array(parents)
    elif "position_ids" in arrays and len(arrays["position_ids"]) == 1 and "attention_mask" not in arrays:
        arrays["document_ids"] = (arrays["position_ids"] == 0).cumsum(axis=1) - 1  # Positions start again.
    np.savez(path, **arrays)
