"""What the ranks of a run must agree on while they save. A process that is alone is rank 0 of 1, without any group."""

from __future__ import annotations

import torch
import torch.distributed as dist


def rank() -> int:
    """Of this process, from 0."""
    return dist.get_rank() if dist.is_initialized() else 0


def world_size() -> int:
    """Number of ranks."""
    return dist.get_world_size() if dist.is_initialized() else 1


def largest(value: int) -> int:
    """The largest value of any rank. All ranks must call it, and none goes on before all have."""
    if world_size() == 1:
        return value
    device = "cuda" if dist.get_backend() == "nccl" else "cpu"
    agreed = torch.tensor(value, device=device)
    dist.all_reduce(agreed, op=dist.ReduceOp.MAX)
    return int(agreed.item())


def together() -> None:
    """Waits until all ranks are here."""
    largest(0)
