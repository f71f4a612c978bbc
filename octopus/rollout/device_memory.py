"""The device's memory: what it says when there is too little, and how it is given what can be spared."""

from __future__ import annotations

import gc
from collections.abc import Callable

import torch

from octopus.core.errors import CapacityExceeded, MemoryInUse, MemoryReleased
from octopus.core.graph import Graph
from octopus.core.storage.kv import KVStorage


def shortage_of(act: Callable[[], None]) -> str | None:
    """Acts. Returns what the device said if its memory did not suffice.

    The error itself goes with the handler: its traceback would keep the tensors of the failed pass alive.
    """
    try:
        act()
    except torch.OutOfMemoryError as error:
        return str(error).partition("\n")[0]
    return None


def give_back_garbage(device: torch.device) -> None:
    """Gives the device what nobody can reach any more, and the blocks that torch keeps for itself."""
    gc.collect()
    _give_back_blocks(device)


def _give_back_blocks(device: torch.device) -> None:
    if device.type == "cuda":
        torch.cuda.empty_cache()


def release(graph: Graph, storage: KVStorage) -> None:
    """Gives the device the memory of a graph's store; cached lines are forgotten.

    Raises:
        MemoryInUse: a step is open, or somebody holds pages or states, or they are being copied. What was cached is
            forgotten all the same.
    """
    with graph.lock:
        if graph.retention.step is not None:
            raise MemoryInUse(
                "the store's memory cannot be released while a step is open; close the step first"
            )
        graph.trim()
        stats = graph.stats()
        if stats.pages.used or stats.states.used:
            living = [thread.id for thread in graph.threads if not thread.status.terminal]
            ended = [thread.id for thread in graph.threads if thread.status.terminal]
            raise MemoryInUse(
                f"the store's memory can be released when nobody holds any of it, but {stats.pages.used} pages and "
                f"{stats.states.used} state slots are held ({stats.transfers} copies are under way): threads {living} "
                f"have not ended, threads {ended} have; drop them all (`Thread.drop`) and release again"
            )
        storage.release()
    _give_back_blocks(storage.device)


def take_back(storage: KVStorage) -> None:
    """Allocates a store's memory again, empty.

    Raises:
        CapacityExceeded: the device has too little. The memory stays released; try again later.
    """
    _give_back_blocks(storage.device)
    shortage = shortage_of(storage.take_back)
    if shortage is not None:
        give_back_garbage(storage.device)
        shortage = shortage_of(storage.take_back)
    if shortage is not None:
        raise CapacityExceeded(
            f"the device has no room for the store's {storage.bytes / 2**30:.2f} GiB: {shortage}; it stays released: "
            "free memory (gradients, optimizer states, cached blocks) and take it back again"
        )


def refuse_released(storage: KVStorage) -> None:
    """Raises MemoryReleased unless the store has its memory."""
    if storage.released:
        raise MemoryReleased(
            "the engine needs the memory of its store, which is released; call `Engine.take_back_memory()` first"
        )
