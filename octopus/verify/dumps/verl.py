"""verl: a batch as the actor gets it, before it is packed. `dump(data, "batch.npz")` in the worker's update."""

from __future__ import annotations

from typing import Any

import numpy as np

NAMES = (
    "input_ids", "attention_mask", "position_ids", "response_mask", "old_log_probs", "rollout_log_probs", "loss_mask",
)  # fmt: skip


def dump(data: Any, path: str, rows: int = 8) -> None:
    """Writes the first rows of a `DataProto`, a TensorDict or a plain dictionary of tensors."""
    batch = getattr(data, "batch", data)
    arrays = {}
    for name in NAMES:
        tensor = batch[name] if name in batch.keys() else None  # noqa: SIM118 - a TensorDict is no mapping
        if tensor is not None:
            tensor = tensor[:rows].detach().cpu()
            arrays[name] = (tensor.float() if tensor.is_floating_point() else tensor).numpy()
    np.savez(path, **arrays)
