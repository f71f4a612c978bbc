"""Dumps with one thing spoilt are clean, found, refused or undecidable; they never make the auditor fail."""

import random
from pathlib import Path

import numpy as np
import pytest
from corpus import heads, masks, packing, positions

from octopus.verify.audits import STATIC, run
from octopus.verify.inputs import Unreadable
from octopus.verify.readers import read
from octopus.verify.readers.reading import KNOWN

BUGS = (*masks.BUGS, *packing.BUGS, *positions.BUGS, *heads.BUGS)
ODD = (-1, 0, 1, 7, 15, 16, 17, 255, 2**31, 2**40, -(2**40), 2**62, np.nan, np.inf, -np.inf, 0.5, 1e-300)
ROUNDS = 6


def spoilt(rng: random.Random, array: np.ndarray) -> np.ndarray:
    """The array with one entry, its length, its shape or its type changed."""
    array = array.copy()
    match rng.randrange(6):
        case 0 | 1 if array.size:
            value = rng.choice(ODD)
            if array.dtype.kind in "iu":
                value = int(value) if np.isfinite(value) else -2
            with np.errstate(all="ignore"):
                array.reshape(-1)[rng.randrange(array.size)] = value
        case 2 if array.ndim:
            array = array[: rng.randrange(len(array) + 1)]
        case 3 if array.ndim:
            array = np.concatenate([array, array[-1:]])
        case 4:
            array = array[None] if rng.random() < 0.5 else array.reshape(-1)
        case _:
            with np.errstate(all="ignore"):
                array = array.astype(rng.choice(["float64", "int64", "bool", "float16"]))
    return array


@pytest.mark.parametrize("seed", range(ROUNDS))
def test_a_spoilt_dump_never_makes_the_auditor_fail(seed: int, tmp_path: Path) -> None:
    """Catches an index, a shape or a division that an audit trusts: anything but a refusal is raised through."""
    rng = random.Random(seed)
    read_back = 0
    for bug in BUGS:
        dump = {**bug.shared, **rng.choice((bug.wrong, bug.right))}
        dump.pop("config", None)
        arrays = {name: np.asarray(value) for name, value in dump.items()}
        if not arrays:
            continue
        name = rng.choice(sorted(arrays))
        arrays[name] = spoilt(rng, arrays[name])
        if rng.random() < 0.2:
            arrays[rng.choice(sorted(KNOWN - {"config"}))] = arrays[name]
        np.savez(tmp_path / "a.npz", **arrays)
        try:
            subjects = read([str(tmp_path / "a.npz")], hints=bug.hints)
        except Unreadable:
            continue
        read_back += 1
        run(STATIC, subjects)
    assert read_back > len(BUGS) // 3
