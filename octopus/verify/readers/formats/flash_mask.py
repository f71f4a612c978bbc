"""FlashMask's `startend_row_indices` `[B, H, T, N]`: for each key the rows that do not see it.

Of a causal mask N is 1 (hidden from that row on) or 2 (hidden in between); of one that is not, 2 (below the diagonal
hidden from the first on, above it hidden before the second) or 4 (hidden in between, below and above).
"""

from __future__ import annotations

import numpy as np

from octopus.verify.inputs import Hints, Unreadable
from octopus.verify.readers.bag import Bag
from octopus.verify.readers.formats.columns import Row, above, as_slices, below, runs
from octopus.verify.readers.part import Format, Part
from octopus.verify.subject import Ranges

NAME, CAUSAL_FLAG = "startend_row_indices", "causal"


def read(bag: Bag, hints: Hints) -> list[Part]:
    """One part a batch row. All heads must agree."""
    indices = bag.integers(NAME)
    if indices is None:
        return []
    if indices.ndim == 2:
        indices = indices[None, None]
    if indices.ndim != 4 or indices.shape[3] not in (1, 2, 4) or not indices.size:
        raise Unreadable(f"{NAME} has shape {indices.shape}; it is [B, H, T, 1, 2 or 4]")
    if (indices != indices[:, :1]).any():
        raise Unreadable(f"{NAME} differs between heads: give one head at a time")
    width = indices.shape[3]
    flag = bag.number(CAUSAL_FLAG)
    if width == 2 and flag is None:
        raise Unreadable(f"{NAME} with two values a key is causal or not: say `{CAUSAL_FLAG}` = 1 or 0")
    causal = width == 1 if flag is None else bool(flag)
    if (width, causal) in ((1, False), (4, True)):
        raise Unreadable(f"{NAME} with {width} values a key cannot be {'causal' if causal else 'without causality'}")
    length = indices.shape[2]
    parts = []
    for columns_TN in np.clip(indices[:, 0], 0, length):
        rows = [row for a, b in runs(columns_TN) for row in _slices(a, b, columns_TN[a].tolist(), length, causal)]
        ranges = Ranges(slices_S5=as_slices(rows), convention=f"FlashMask, {'causal' if causal else 'not causal'}")
        parts.append(Part(fields={"mask": ranges}, length=length))
    return parts


def _slices(a: int, b: int, hidden: list[int], length: int, causal: bool) -> list[Row]:
    """What the rows that see the keys [a, b) are, given where they are hidden."""
    if causal:
        start, stop = (hidden[0], length) if len(hidden) == 1 else hidden
        return [*below(a, b, 0, start), *below(a, b, max(start, stop), length)]
    if len(hidden) == 2:
        return [*below(a, b, 0, hidden[0]), *above(a, b, hidden[1], length)]
    start, stop, upper_start, upper_stop = hidden
    return [
        *below(a, b, 0, start),
        *below(a, b, max(start, stop), length),
        *above(a, b, 0, upper_start),
        *above(a, b, max(upper_start, upper_stop), length),
    ]


FORMAT = Format(name="flashmask", names=(NAME, CAUSAL_FLAG), read=read)
