"""MagiAttention's slices: `q_ranges`, `k_ranges` `[S, 2]` and `attn_type_map` `[S]` (full, causal, inverse, both)."""

from __future__ import annotations

import numpy as np

from octopus.verify.inputs import Hints, Unreadable
from octopus.verify.readers.bag import Bag
from octopus.verify.readers.part import Format, Part
from octopus.verify.subject import BICAUSAL, FULL, Ranges

TYPES = ("attn_type_map", "types")


def read(bag: Bag, hints: Hints) -> list[Part]:
    """One part, the slices as they are. The length is one past the last row or key of any."""
    queries, keys = bag.integers("q_ranges"), bag.integers("k_ranges")
    if queries is None and keys is None:
        return []
    types = bag.integers(*TYPES)
    if queries is None or keys is None or queries.shape != keys.shape or queries.ndim != 2 or queries.shape[1] != 2:
        raise Unreadable("q_ranges and k_ranges belong together, both [S, 2]")
    if types is None:
        raise Unreadable("attn_type_map must say for each slice whether it is 0 full, 1 causal, 2 inverse or 3 both")
    if types.shape != queries.shape[:1] or ((types < FULL) | (types > BICAUSAL)).any():
        raise Unreadable(f"attn_type_map is [S] of 0 to 3 and has shape {types.shape}")
    ranges = np.concatenate([queries, keys], axis=1)
    check_ranges(ranges, "q_ranges and k_ranges")
    slices_S5 = np.concatenate([ranges, types[:, None]], axis=1)
    length = int(ranges[:, (1, 3)].max(initial=0))
    return [Part(fields={"mask": Ranges(slices_S5=slices_S5, convention="MagiAttention slices")}, length=length)]


def check_ranges(ranges_S4: np.ndarray, what: str) -> None:
    """Raises `Unreadable` unless q0 <= q1, k0 <= k1 and all are row numbers of a possible size."""
    if ((ranges_S4 < 0) | (ranges_S4 > 2**40)).any() or (ranges_S4[:, ::2] > ranges_S4[:, 1::2]).any():
        raise Unreadable(f"{what}: a range ends before it begins, or is out of all bounds")


FORMAT = Format(name="magi", names=("q_ranges", "k_ranges", *TYPES), read=read)
