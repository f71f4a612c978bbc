"""Megatron's THD layout: the parameters of a packed batch. `dump(packed_seq_params, "batch.npz", position_ids)`."""

from __future__ import annotations

from typing import Any

import numpy as np

NAMES = ("cu_seqlens_q", "cu_seqlens_kv", "cu_seqlens_q_padded", "cu_seqlens_kv_padded")


def dump(packed: Any, path: str, position_ids: Any = None, rolled_labels: Any = None) -> None:
    """Writes a `PackedSeqParams`; `rolled_labels` are those of the loss, already shifted by one, -100 where masked."""
    given = {name: getattr(packed, name, None) for name in NAMES}
    given |= {"position_ids": position_ids, "rolled_labels": rolled_labels}
    np.savez(path, **{name: value.detach().cpu().numpy() for name, value in given.items() if value is not None})
