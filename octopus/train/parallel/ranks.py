"""The processes of a run. One process alone is the same code with a world of one and no process group."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Any

import torch
import torch.distributed as dist

from octopus.core.errors import ConfigError

LIMIT_S = 1800.0
"""Seconds after which a rank that waits for another one gives up. The longest that one legally waits is while another
one still plays its rollouts or is in a pass of its own."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Ranks:
    """This process among those of the run. Every method with more than one process is a collective: all call it.

    Attributes:
        rank: Its number, from 0.
        size: Number of processes.
        device: Its device.
        grouped: Whether there is a process group.
    """

    rank: int = 0
    size: int = 1
    device: torch.device = field(default_factory=lambda: torch.device("cpu"))
    grouped: bool = False

    @property
    def first(self) -> bool:
        """Whether this is the process that writes files and reports."""
        return self.rank == 0

    def total(self, values: Sequence[float]) -> list[float]:
        """The sum over ranks of each of a list of figures, in float64."""
        return self._reduced(values, dist.ReduceOp.SUM)

    def most(self, values: Sequence[float]) -> list[float]:
        """The maximum over ranks of each of a list of figures."""
        return self._reduced(values, dist.ReduceOp.MAX)

    def meet(self) -> None:
        """Waits until all ranks are here."""
        self.total([0.0])

    def gather(self, value: Any) -> list[Any]:
        """A JSON value of every rank, by rank. It travels as text, so floats arrive bit by bit and nothing is run."""
        if not self.grouped:
            return [value]
        data = torch.frombuffer(bytearray(json.dumps(value).encode()), dtype=torch.uint8).to(self.device)
        lengths = [int(count) for count in self.total([len(data) * (rank == self.rank) for rank in range(self.size)])]
        padded = data.new_zeros(max(lengths))
        padded[: len(data)] = data
        pieces = [torch.empty_like(padded) for _ in lengths]
        dist.all_gather(pieces, padded)
        texts = (piece[:length].cpu().numpy().tobytes() for piece, length in zip(pieces, lengths, strict=True))
        return [json.loads(text) for text in texts]

    def _reduced(self, values: Sequence[float], operation: Any) -> list[float]:
        if not self.grouped:
            return [float(value) for value in values]
        tensor = torch.tensor(values, dtype=torch.float64, device=self.device)
        dist.all_reduce(tensor, operation)
        return tensor.tolist()


ALONE = Ranks()


def present() -> Ranks:
    """Those of the process group that this process has joined; alone without one."""
    if not dist.is_initialized():
        return ALONE
    own = torch.device("cuda", torch.cuda.current_device()) if dist.get_backend() == "nccl" else torch.device("cpu")
    return Ranks(rank=dist.get_rank(), size=dist.get_world_size(), device=own, grouped=True)


@contextmanager
def joined(device: str, *, limit_s: float = LIMIT_S) -> Iterator[Ranks]:
    """Joins the other processes that torchrun started; alone without torchrun.

    Args:
        device: `cpu` (gloo) or `cuda` (NCCL); of several GPUs each process takes the one of its local number.
        limit_s: Seconds that a rank waits for another one.

    Raises:
        ConfigError: A device that was numbered, or of which there are fewer than processes.
    """
    if not dist.is_torchelastic_launched():
        yield Ranks(device=torch.device(device))
        return
    place = _own_device(device)
    dist.init_process_group(
        "nccl" if place.type == "cuda" else "gloo",
        timeout=timedelta(seconds=limit_s),
        device_id=place if place.type == "cuda" else None,
    )
    try:
        yield present()
    finally:
        dist.destroy_process_group()


def _own_device(name: str) -> torch.device:
    device = torch.device(name)
    if device.index is not None:
        raise ConfigError(
            f"model.device: expected 'cpu' or 'cuda' under torchrun, which numbers the devices itself, came {name!r}"
        )
    if device.type != "cuda":
        return device
    number, count = dist.get_node_local_rank(), torch.cuda.device_count()
    if number >= count:
        raise ConfigError(
            f"torchrun started process {number} of this machine, which has {count} CUDA devices; "
            f"start at most {count} processes (--nproc-per-node)"
        )
    own = torch.device("cuda", number)
    torch.cuda.set_device(own)
    return own
