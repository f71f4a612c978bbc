"""Cumulative lengths of a packed row: FlashAttention's varlen calls, TRL, verl, Megatron's THD layout."""

from __future__ import annotations

from typing import Any

import numpy as np

from octopus.verify.inputs import Hints, Unreadable
from octopus.verify.readers.bag import Bag
from octopus.verify.readers.containers.source import BYTES_PER_TOKEN, refuse_beyond
from octopus.verify.readers.part import Format, Part
from octopus.verify.subject import Boundaries

QUERIES = ("cu_seqlens", "cu_seqlens_q", "cu_seq_lens_q")
KEYS = ("cu_seqlens_k", "cu_seqlens_kv", "cu_seq_lens_k")
PADDED = "cu_seqlens_q_padded"
PADDED_KEYS = "cu_seqlens_kv_padded"


def read(bag: Bag, hints: Hints) -> list[Part]:
    """One part, exactly as given: the packed row has no batch. Its length is the largest value."""
    queries, keys = bag.integers(*QUERIES), bag.integers(*KEYS)
    if queries is None:
        queries, keys = keys, None
    if queries is None:
        return []
    if queries.ndim != 1 or not queries.size or (keys is not None and keys.ndim != 1):
        raise Unreadable(f"cumulative lengths have shape {queries.shape}; they are one list")
    padded, length = bag.integers(PADDED), max(0, int(queries.max()))
    fields: dict[str, Any] = {"boundaries": Boundaries(queries_N=queries, keys_N=keys)}
    if padded is not None and bag.first(*QUERIES) is not None:
        # Each sequence lies in a padded place; what it does not fill is padding, and no part of the sequence.
        same = (other := bag.integers(PADDED_KEYS)) is None or np.array_equal(other, padded)
        if padded.shape != queries.shape or (np.diff(padded) < np.diff(queries)).any() or not same:
            raise Unreadable(f"{PADDED} and the lengths without padding do not fit each other")
        length = max(0, int(padded.max()))
        refuse_beyond(length * BYTES_PER_TOKEN, hints.max_bytes, f"a row of {length:,} tokens")
        fields = {
            "boundaries": Boundaries(queries_N=np.union1d(padded, padded[:-1] + np.diff(queries))),
            "padding_T": _padding(padded, np.diff(queries), length),
        }
    return [Part(fields=fields, length=length)]


def _padding(padded_N: np.ndarray, lengths_N: np.ndarray, length: int) -> np.ndarray:
    padding_T = np.ones(length, dtype=bool)
    for start, count in zip(padded_N[:-1].tolist(), lengths_N.tolist(), strict=True):
        padding_T[start : start + count] = False
    return padding_T


FORMAT = Format(name="cu_seqlens", names=(*QUERIES, *KEYS, PADDED, PADDED_KEYS), read=read)
