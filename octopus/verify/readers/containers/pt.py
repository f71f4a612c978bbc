"""Torch's `.pt` files, only on request: their unpickler reads bytes from a stranger, `weights_only` or not.

The zip file around the pickle is checked first, so no member is inflated beyond what is allowed. Nothing is ever loaded
with the full unpickler.
"""

from __future__ import annotations

import pickle
from pathlib import Path

import numpy as np

from octopus.verify.inputs import Unreadable
from octopus.verify.readers.bag import Stored
from octopus.verify.readers.containers.source import opened, refuse_beyond, refuse_name
from octopus.verify.readers.containers.zip_members import members

OLDEST_TORCH = (2, 10)
"""Before it the `weights_only` unpickler could corrupt memory (CVE-2026-24747)."""


REFUSALS = (pickle.UnpicklingError, RuntimeError, ValueError, EOFError, LookupError, AttributeError, TypeError)


def read_pt(path: Path, max_bytes: int) -> dict[str, Stored]:
    """The tensors of a dictionary saved with `torch.save`, or one tensor under the name of the file.

    Raises:
        Unreadable: torch is missing or too old, the file holds something else, or a tensor is sparse, quantised or
            larger than is allowed (a small storage can be expanded to any shape).
    """
    try:
        import torch
    except ImportError as error:
        raise Unreadable("reading .pt files needs torch") from error
    if tuple(int(part) for part in torch.__version__.split(".")[:2]) < OLDEST_TORCH:
        raise Unreadable(f"torch {torch.__version__} is too old to read a stranger's .pt file: 2.10 is the oldest")
    with opened(path) as (file, size):
        members(file, size, max_bytes)
        file.seek(0)
        try:
            loaded = torch.load(file, map_location="cpu", weights_only=True)
        except REFUSALS as error:
            raise Unreadable(f"torch refuses the file: {str(error).splitlines()[0]}") from error
    tensors = {path.stem: loaded} if isinstance(loaded, torch.Tensor) else loaded
    if not isinstance(tensors, dict):
        raise Unreadable("the file holds neither a tensor nor a dictionary of tensors")
    total = 0
    for name, tensor in tensors.items():
        if not isinstance(name, str) or not isinstance(tensor, torch.Tensor):
            raise Unreadable("the file holds something besides named tensors")
        refuse_name(name, "a tensor")
        if tensor.layout != torch.strided or tensor.is_quantized or tensor.is_complex():
            raise Unreadable(f"tensor {name} is sparse, quantised or complex")
        total += tensor.numel() * max(tensor.element_size(), 4)
    refuse_beyond(total, max_bytes, "the file")
    return {name: _stored(tensor) for name, tensor in tensors.items()}


def _stored(tensor: object) -> Stored:
    import torch

    assert isinstance(tensor, torch.Tensor)
    dtype = str(tensor.dtype).removeprefix("torch.")
    try:
        array: np.ndarray = (tensor.float() if tensor.dtype == torch.bfloat16 else tensor).detach().numpy()
    except TypeError as error:
        raise Unreadable(f"a tensor of type {dtype} has no counterpart in numpy") from error
    return Stored(array=array, dtype=dtype)
