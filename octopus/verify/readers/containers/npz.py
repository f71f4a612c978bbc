"""NumPy's `.npz`: a zip file of `.npy` members."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from octopus.verify.inputs import Unreadable
from octopus.verify.readers.containers.npy import parse_npy
from octopus.verify.readers.containers.source import opened
from octopus.verify.readers.containers.zip_members import members, read_member


def read_npz(path: Path, max_bytes: int) -> dict[str, np.ndarray]:
    """The arrays by name, without the `.npy`. Raises `Unreadable`."""
    with opened(path) as (file, size):
        found = members(file, size, max_bytes)
        for member in found:
            if not member.name.endswith(".npy") or member.name == ".npy":
                raise Unreadable(f"member {member.name} is not an array; an .npz file holds .npy members only")
        return {m.name.removesuffix(".npy"): parse_npy(read_member(file, m), f"member {m.name}") for m in found}
