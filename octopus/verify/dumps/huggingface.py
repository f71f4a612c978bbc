"""Hugging Face: the mask that the first attention layer is really given. `dump(model, "call", input_ids=..., ...)`."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch


@torch.no_grad()
def dump(model: Any, path: str, **inputs: Any) -> None:
    """Writes `path`.npz (mask, positions, documents where positions start again) and `path`.json."""
    seen: dict[str, Any] = {}
    layer = next(module for module in model.modules() if hasattr(module, "q_proj"))
    hook = layer.register_forward_pre_hook(lambda module, args, kwargs: seen.update(kwargs), with_kwargs=True)
    model(**inputs)
    hook.remove()
    mask, length = seen.get("attention_mask"), inputs["input_ids"].shape[1]
    arrays: dict[str, Any] = {"mask": np.tri(length, dtype=bool)}  # None means plain causal attention.
    if mask is not None:
        arrays["mask"] = (mask.float() if mask.is_floating_point() else mask).cpu().numpy()
    if (positions := inputs.get("position_ids")) is not None:
        arrays["position_ids"] = positions.cpu().numpy()
        arrays["document_ids"] = (arrays["position_ids"] == 0).cumsum(axis=-1) - 1
    np.savez(f"{path}.npz", **arrays)
    model.config.to_json_file(f"{path}.json")
