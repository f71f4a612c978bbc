"""TRL's rows of prefix trees: which keys each segment of queries gathers, `tree_kv_index` with cumulative lengths.

Segment s has the queries `[cu_q[s], cu_q[s + 1])` and the keys `tree_kv_index[cu_k[s] : cu_k[s + 1]]`, of which the
last query sees all and each one before it one less.
"""

from __future__ import annotations

from itertools import pairwise

import numpy as np

from octopus.verify.inputs import Hints, Unreadable
from octopus.verify.readers.bag import Bag
from octopus.verify.readers.formats.columns import Row, as_slices
from octopus.verify.readers.part import Format, Part
from octopus.verify.subject import CAUSAL, FULL, Ranges

NAMES = ("tree_kv_index", "tree_cu_seqlens_q", "tree_cu_seqlens_k")


def read(bag: Bag, hints: Hints) -> list[Part]:
    """One part."""
    index, queries, keys = (bag.integers(name) for name in NAMES)
    if index is None and queries is None and keys is None:
        return []
    if index is None or queries is None or keys is None or queries.shape != keys.shape or queries.ndim != 1:
        raise Unreadable(f"{', '.join(NAMES)} belong together")
    if not (_rising(queries) and _rising(keys) and index.ndim == 1 and len(index) == keys[-1]):
        raise Unreadable("the cumulative lengths of the tree row do not rise from 0, or do not fit its keys")
    length = int(queries[-1])
    if len(index) and not (index.min() >= 0 and index.max() < length):
        raise Unreadable(f"tree_kv_index names keys outside of the {length} rows")
    rows: list[Row] = []
    for q0, q1, k0, k1 in zip(queries[:-1], queries[1:], keys[:-1], keys[1:], strict=True):
        rows += _segment(int(q0), int(q1), index[k0:k1])
    return [Part(fields={"mask": Ranges(slices_S5=as_slices(rows), convention="TRL tree row")}, length=length)]


def _rising(cumulative: np.ndarray) -> bool:
    return len(cumulative) > 1 and cumulative[0] == 0 and bool((np.diff(cumulative) >= 0).all())


def _segment(q0: int, q1: int, gathered: np.ndarray) -> list[Row]:
    """Slices of one segment: one or two for each run of keys that follow each other."""
    before = len(gathered) - (q1 - q0)  # Gathered keys that the first query sees, less itself.
    bounds = [0, *(np.flatnonzero(np.diff(gathered) != 1) + 1).tolist(), len(gathered)]
    found: list[Row] = []
    for first, stop in pairwise(bounds):
        if first == stop:
            continue
        k0, k1 = int(gathered[first]), int(gathered[stop - 1]) + 1
        begins, whole = max(q0, q0 + first - before), max(q0, q0 + stop - 1 - before)
        if begins < whole:
            # Up to the row before `whole` the run grows by a key a row.
            found.append((begins, whole, k0, k1 - 1, CAUSAL))
        if whole < q1:
            found.append((whole, q1, k0, k1, FULL))
    return found


FORMAT = Format(name="trl_tree", names=NAMES, read=read)
