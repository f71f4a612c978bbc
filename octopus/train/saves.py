"""Saves of a training run: written aside, then renamed, so that a save exists whole or not at all.

A run's folder holds one folder a save:

    step-000010/model.safetensors    weights
    step-000010/trainer.pt           step, optimiser, random generators
"""

from __future__ import annotations

import os
import tempfile
from pathlib import Path

import torch
from safetensors.torch import load_model, save_model

from octopus.core.errors import OctopusError


def save(folder: Path, *, step: int, model: torch.nn.Module, optimizer: torch.optim.Optimizer) -> Path:
    """Writes a save and returns its folder.

    Raises:
        OctopusError: The folder has a save of this step already.
    """
    final = folder / f"step-{step:06d}"
    if final.exists():
        raise OctopusError(f"{final} exists; a save is never overwritten")
    folder.mkdir(parents=True, exist_ok=True)
    state = {
        "step": step,
        "optimizer": optimizer.state_dict(),
        "cpu_generator": torch.get_rng_state(),
        "cuda_generators": torch.cuda.get_rng_state_all() if torch.cuda.is_available() else [],
    }
    with tempfile.TemporaryDirectory(prefix=".saving-", dir=folder) as scratch:
        draft = Path(scratch) / final.name
        draft.mkdir()
        save_model(model, str(draft / "model.safetensors"))
        torch.save(state, draft / "trainer.pt")
        for path in (*draft.iterdir(), draft):
            _flush(path)
        draft.rename(final)
    _flush(folder)
    return final


def load(path: Path, *, model: torch.nn.Module, optimizer: torch.optim.Optimizer) -> int:
    """Restores a save into `model`, `optimizer` and torch's generators, and returns its step.

    The next step then gives the same bits as if the run had never stopped.
    """
    load_model(model, path / "model.safetensors")
    state = torch.load(path / "trainer.pt", map_location="cpu", weights_only=True)
    optimizer.load_state_dict(state["optimizer"])
    torch.set_rng_state(state["cpu_generator"])
    if state["cuda_generators"]:
        torch.cuda.set_rng_state_all(state["cuda_generators"])
    return int(state["step"])


def newest(folder: Path) -> Path | None:
    """The save with the highest step, None if there is none."""
    return max(folder.glob("step-*"), default=None, key=lambda path: int(path.name.removeprefix("step-")))


def _flush(path: Path) -> None:
    """Waits until a file, or a folder's list of names, is on the disk."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
