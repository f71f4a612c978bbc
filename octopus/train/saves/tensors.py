"""Named tensors in files of bounded size, gathered from all ranks and laid out on them again."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path

import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import save_file
from torch.distributed.tensor import DTensor, distribute_tensor

SHARD_BYTES = 2 << 30
"""Of a file, and so of the host memory that a save takes. One tensor may be larger."""

Put = Callable[[Path, Mapping[str, torch.Tensor]], None]


def write_tensors(
    folder: Path, stem: str, tensors: Mapping[str, torch.Tensor], *, shard_bytes: int, put: Put | None
) -> None:
    """Writes tensors under their names; those of several ranks as one. All ranks must call it with the same names.

    Args:
        folder: Where to.
        stem: Of the files: `model.safetensors`, or `model-00001-of-00003.safetensors` and so on.
        tensors: On any device, or sharded over ranks.
        shard_bytes: Most bytes of a file, unless one tensor has more.
        put: Writes one file, given its path and what is in it; None on a rank that only helps to gather.
    """
    shards = list(_shards(tensors, shard_bytes))
    for number, names in enumerate(shards, start=1):
        held = {}
        for name in names:
            whole = _gathered(tensors[name])
            if put is not None:
                held[name] = whole.detach().cpu().contiguous()
        if put is not None:
            suffix = "" if len(shards) == 1 else f"-{number:05d}-of-{len(shards):05d}"
            put(folder / f"{stem}{suffix}.safetensors", held)


def put_file(path: Path, tensors: Mapping[str, torch.Tensor]) -> None:
    """Writes one file.

    Raises:
        OSError: The disk is full or broken.
    """
    try:
        save_file(dict(tensors), path, metadata={"format": "pt"})
    except SafetensorError as error:  # It is what the library makes of the system's error.
        raise OSError(f"{path.name}: {error}") from error


def read_tensors(folder: Path, stem: str, files: Iterable[str]) -> Iterator[tuple[str, torch.Tensor]]:
    """Yields what `write_tensors` wrote, one tensor at a time, on the CPU."""
    for file in files:
        if file.endswith(".safetensors") and file.removesuffix(".safetensors").split("-")[0] == stem:
            with safe_open(folder / file, framework="pt") as shard:
                for name in shard.keys():  # noqa: SIM118  it is no mapping
                    yield name, shard.get_tensor(name)


def like(value: torch.Tensor, target: torch.Tensor) -> torch.Tensor:
    """A whole tensor from the CPU on the device of the target, sharded as the target is."""
    value = value.to(target.device)
    if isinstance(target, DTensor):
        # Every rank has read the file: nothing needs to be sent.
        return distribute_tensor(value, target.device_mesh, target.placements, src_data_rank=None)
    return value


def _shards(tensors: Mapping[str, torch.Tensor], shard_bytes: int) -> Iterator[list[str]]:
    """Names of the tensors of each file, in their order."""
    names: list[str] = []
    filled = 0
    for name, tensor in tensors.items():
        size = tensor.numel() * tensor.element_size()
        if names and filled + size > shard_bytes:
            yield names
            names, filled = [], 0
        names.append(name)
        filled += size
    if names:
        yield names


def _gathered(tensor: torch.Tensor) -> torch.Tensor:
    return tensor.full_tensor() if isinstance(tensor, DTensor) else tensor
