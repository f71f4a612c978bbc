"""Position ids: `[T]`, `[B, T]`, and for multi-axis rotary `[A, B, T]` (Hugging Face) or `[B, A, T]` (verl)."""

from __future__ import annotations

import numpy as np

from octopus.verify.inputs import Hints, Unreadable
from octopus.verify.readers.bag import Bag, whole_numbers
from octopus.verify.readers.part import Format, Part
from octopus.verify.subject import Positions

NAMES = ("position_ids", "positions")
AXES = (3, 4)


def read(bag: Bag, hints: Hints) -> list[Part]:
    """One part a batch row, values and type as stored."""
    name = bag.first(*NAMES)
    if name is None:
        return []
    stored = bag.arrays[name]
    ids, note = stored.array, ""
    if stored.array.dtype.kind not in "iuf" or not 1 <= ids.ndim <= 3:
        raise Unreadable(f"{name} has type {stored.dtype} and shape {ids.shape}; numbers [T], [B, T] or [A, B, T]")
    if ids.ndim == 3:
        if ids.shape[0] in AXES:
            note = f"{name}: the first axis was read as the {ids.shape[0]} axes of multi-axis rotary"
            ids = ids.swapaxes(0, 1)
        elif ids.shape[1] in AXES:
            note = f"{name}: the second axis was read as the {ids.shape[1]} axes of multi-axis rotary"
        else:
            raise Unreadable(f"{name} has shape {ids.shape}: neither of the first two axes is 3 or 4")
        ids_BAT = ids
    else:
        ids_BAT = np.atleast_2d(ids)[:, None]
    frequencies = bag.first("inv_freq")
    return [
        Part(
            fields={
                "positions": Positions(
                    ids_AT=whole_numbers(row, name),
                    dtype=stored.dtype,
                    inverse_frequency_dtype=None if frequencies is None else bag.arrays[frequencies].dtype,
                )
            },
            length=row.shape[1],
            notes=(note,) if note else (),
        )
        for row in ids_BAT
    ]


FORMAT = Format(name="position_ids", names=(*NAMES, "inv_freq"), read=read)
