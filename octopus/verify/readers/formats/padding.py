"""One flag a token, `[T]` or `[B, T]`: which rows are padding, or (numbers above 1) which document a row is in."""

from __future__ import annotations

import numpy as np

from octopus.verify.inputs import Hints, Unreadable
from octopus.verify.readers.bag import Bag
from octopus.verify.readers.formats.mask import is_padding
from octopus.verify.readers.part import Format, Part
from octopus.verify.subject import Descent


def read(bag: Bag, hints: Hints) -> list[Part]:
    """One part a batch row. `attention_mask` is 0 at padding; `key_padding_mask` is True there."""
    name = bag.first("attention_mask", "key_padding_mask")
    if name is None or (name == "attention_mask" and not is_padding(name, bag.arrays[name].array)):
        return []
    flags = bag.integers(name)
    assert flags is not None
    if not 1 <= flags.ndim <= 2:
        raise Unreadable(f"{name} has shape {flags.shape}; one flag a token is [T] or [B, T]")
    flags_BT = np.atleast_2d(flags)
    if name == "key_padding_mask":
        flags_BT = 1 - flags_BT
    numbered = bool((flags_BT > 1).any())
    note = f"{name} was read as {'document numbers, 0 = padding' if numbered else 'flags, 0 = padding'}"
    return [
        Part(
            fields={"padding_T": row == 0} | ({"descent": Descent(documents_T=row)} if numbered else {}),
            length=len(row),
            notes=(note,),
        )
        for row in flags_BT
    ]


FORMAT = Format(name="padding", names=("attention_mask", "key_padding_mask"), read=read)
