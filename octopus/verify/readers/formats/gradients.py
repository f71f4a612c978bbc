"""Gradients of several losses with respect to the input embeddings: `dL0_dE`, `dL1_dE`, ... each `[T, hidden]`.

`loss0_rows` and so on name the rows whose hidden states each loss reads.
"""

from __future__ import annotations

import re

import numpy as np

from octopus.verify.facets import EmbeddingGradients
from octopus.verify.inputs import Hints, Unreadable
from octopus.verify.readers.bag import Bag
from octopus.verify.readers.part import Format, Part

MAX_LOSSES = 1000
GRADIENT = re.compile(r"dL(\d{1,3})_dE")


def read(bag: Bag, hints: Hints) -> list[Part]:
    """One part. Entries become their largest absolute value a row, so an exact zero stays one."""
    numbers = sorted(int(match[1]) for match in map(GRADIENT.fullmatch, bag.arrays) if match)
    if not numbers:
        return []
    norms, rows = [], []
    for number in numbers:
        gradient, read_rows = bag.array(f"dL{number}_dE"), bag.integers(f"loss{number}_rows")
        assert gradient is not None
        if read_rows is None or read_rows.ndim != 1:
            raise Unreadable(f"dL{number}_dE needs loss{number}_rows, a list of the rows that the loss reads")
        if gradient.ndim == 3 and len(gradient) == 1:
            gradient = gradient[0]
        if gradient.ndim != 2 or not gradient.size or gradient.dtype.kind != "f":
            raise Unreadable(f"dL{number}_dE has shape {gradient.shape}; it is floats [T, hidden]")
        norms.append(np.abs(gradient).max(axis=1).astype(np.float64))
        rows.append(read_rows)
    if len({len(row) for row in norms}) != 1:
        raise Unreadable("the gradients are of different lengths")
    gradients = EmbeddingGradients(norms_BT=np.stack(norms), loss_rows=tuple(rows))
    return [Part(fields={"gradients": gradients}, length=gradients.norms_BT.shape[1])]


NAMES = tuple(name for number in range(MAX_LOSSES) for name in (f"dL{number}_dE", f"loss{number}_rows"))
FORMAT = Format(name="gradients", names=NAMES, read=read)
