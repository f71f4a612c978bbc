"""Key intervals of each query row: cuDNN's endpoints `[H, N, T]`, N odd, or pairs `[T, M, 2]`.

cuDNN's (and FlashAttention 4's) list e0, e1, e2, ... of a row means the keys [0, e0), [e1, e2), [e3, e4), ...
"""

from __future__ import annotations

import numpy as np

from octopus.verify.inputs import Hints, Unreadable
from octopus.verify.readers.bag import Bag
from octopus.verify.readers.formats.columns import Row, as_slices
from octopus.verify.readers.part import Format, Part
from octopus.verify.subject import CAUSAL, FULL, Ranges

NATIVE, PAIRS = "cudnn_endpoints", "interval_endpoints"


def read(bag: Bag, hints: Hints) -> list[Part]:
    """One part. All heads must agree."""
    native, pairs_TM2 = bag.integers(NATIVE), bag.integers(PAIRS)
    if native is not None:
        native = native[None] if native.ndim == 2 else native
        if native.ndim != 3 or native.shape[1] % 2 == 0 or not native.size:
            raise Unreadable(f"{NATIVE} has shape {native.shape}; it is [H, odd number, T]")
        if (native != native[:1]).any():
            raise Unreadable(f"{NATIVE} differs between heads: give one head at a time")
        flat_NT = np.concatenate([np.zeros_like(native[0, :1]), native[0]])
        pairs_TM2 = flat_NT.reshape(-1, 2, flat_NT.shape[1]).transpose(2, 0, 1)
    if pairs_TM2 is None:
        return []
    if pairs_TM2.ndim != 3 or pairs_TM2.shape[2] != 2:
        raise Unreadable(f"{PAIRS} has shape {pairs_TM2.shape}; it is [T, M, 2]")
    length = len(pairs_TM2)
    if ((pairs_TM2 < 0) | (pairs_TM2 > length)).any():
        raise Unreadable(f"an interval leads outside of the {length} keys")
    rows = [row for m in range(pairs_TM2.shape[1]) for row in _column(pairs_TM2[:, m])]
    return [Part(fields={"mask": Ranges(slices_S5=as_slices(rows), convention="interval endpoints")}, length=length)]


def _column(intervals_T2: np.ndarray) -> list[Row]:
    """Slices of one interval a row: runs of rows in which it stays, or in which its stop grows by one each."""
    live = intervals_T2[:, 0] < intervals_T2[:, 1]
    step_T2 = np.diff(intervals_T2, axis=0)
    grows = np.where(live[1:] & live[:-1] & (step_T2[:, 0] == 0), step_T2[:, 1], -1)
    found: list[Row] = []
    row, length = 0, len(intervals_T2)
    breaks = np.flatnonzero(np.diff(grows)) + 1
    while row < length:
        growth = int(grows[row]) if row < length - 1 else -1
        stop = row + 1
        if growth in (0, 1):
            later = breaks[np.searchsorted(breaks, row, side="right") :]
            stop = int(later[0]) + 1 if len(later) else length
        if live[row]:
            start, end = int(intervals_T2[row, 0]), int(intervals_T2[stop - 1, 1])
            found.append((row, stop, start, end, CAUSAL if growth == 1 else FULL))
        row = stop
    return found


FORMAT = Format(name="endpoints", names=(NATIVE, PAIRS), read=read)
