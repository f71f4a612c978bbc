"""The random generators of a process: torch's, Python's and numpy's global ones.

Octopus draws from generators keyed by seeds and steps. These are for dropout, and for reward functions of users.
"""

from __future__ import annotations

import random
from typing import Any

import numpy as np
import torch


def generators() -> dict[str, Any]:
    """What they stand at, as JSON."""
    version, state, gauss = random.getstate()
    numpy_state: Any = np.random.get_state(legacy=False)  # noqa: NPY002  users' code may draw from it
    cuda = torch.cuda.get_rng_state_all() if torch.cuda.is_available() else []
    return {
        "torch_cpu": _hex(torch.get_rng_state()),
        "torch_cuda": [_hex(one) for one in cuda],
        "python": [version, list(state), gauss],
        "numpy": numpy_state | {"state": numpy_state["state"] | {"key": numpy_state["state"]["key"].tolist()}},
    }


def restore_generators(saved: dict[str, Any]) -> None:
    """Sets them back. GPUs that are not there now are left out."""
    torch.set_rng_state(_tensor(saved["torch_cpu"]))
    for device, state in enumerate(saved["torch_cuda"][: torch.cuda.device_count()]):
        torch.cuda.set_rng_state(_tensor(state), device)
    version, state, gauss = saved["python"]
    random.setstate((version, tuple(state), gauss))
    np.random.set_state(saved["numpy"])  # noqa: NPY002


def _hex(state: torch.Tensor) -> str:
    return bytes(state.tolist()).hex()


def _tensor(text: str) -> torch.Tensor:
    return torch.tensor(list(bytes.fromhex(text)), dtype=torch.uint8)
