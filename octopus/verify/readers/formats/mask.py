"""Masks as matrices: bool or additive, `[Q, K]`, `[B, Q, K]` or `[B, H, Q, K]`.

A matrix does not say what True means (PyTorch's attention: visible; its MultiheadAttention, Megatron and Transformer
Engine: hidden). Every token sees itself, so the diagonal tells; what was concluded is stated.
"""

from __future__ import annotations

import numpy as np

from octopus.verify.inputs import Hints, Unreadable
from octopus.verify.readers.bag import Bag
from octopus.verify.readers.part import Format, Part
from octopus.verify.subject import DenseMask

NAMES = ("mask", "attn_mask", "causal_mask", "attention_mask")
HIDING = -1e4
"""An additive value at or below it hides a key. Softmax gives such a key exactly 0 in every precision; some older code
hides with -10000. Whether the value is a proper one is OCT106's question."""


def read(bag: Bag, hints: Hints) -> list[Part]:
    """One part a batch row."""
    name = bag.first(*NAMES)
    if name is None or is_padding(name, bag.arrays[name].array):
        return []
    mask = bag.arrays[name].array
    if not 2 <= mask.ndim <= 4 or not mask.size:
        raise Unreadable(f"{name} has shape {mask.shape}; a mask is [Q, K], [B, Q, K] or [B, H, Q, K]")
    notes = ["the first axis of the mask was read as the batch"] if mask.ndim == 3 else []
    mask_BHQK = mask.reshape((1,) * (4 - mask.ndim) + mask.shape) if mask.ndim != 3 else mask[:, None]
    queries, keys = mask_BHQK.shape[2:]
    start = bag.number("query_start")
    if start is None:
        start = keys - queries
        if start > 0:
            notes.append(f"{queries} queries over {keys} keys were read as the last rows (bottom right)")
    if not 0 <= start <= keys - queries:
        raise Unreadable(f"{name} has {queries} queries from row {start} on and {keys} keys: they do not fit")
    convention, why = _convention(mask_BHQK, start, hints)
    notes.append(f"{name}: {convention} ({why})")
    values_BHQK = mask_BHQK if convention.startswith("additive") else None
    seen_BHQK = mask_BHQK > HIDING if values_BHQK is not None else mask_BHQK != (0 if "visible" in convention else 1)
    return [
        Part(
            fields={
                "mask": DenseMask(
                    seen_HQK=seen_BHQK[row],
                    values_HQK=None if values_BHQK is None else values_BHQK[row],
                    convention=convention,
                ),
                "query_start": start,
            },
            length=keys,
            notes=tuple(notes),
        )
        for row in range(len(mask_BHQK))
    ]


def is_padding(name: str, array: np.ndarray) -> bool:
    """Whether an array by this name is one flag a token: `attention_mask` with one or two axes and nothing below 0."""
    return name == "attention_mask" and array.ndim <= 2 and not (array.size and array.min() < 0)


def _convention(mask_BHQK: np.ndarray, start: int, hints: Hints) -> tuple[str, str]:
    """What the values mean, and how that is known."""
    keep, drop = "bool, True = visible", "bool, True = hidden"
    additive = "additive, 0 = visible"
    if hints.convention is not None:
        told = {"keep": keep, "drop": drop, "additive": additive}[hints.convention]
        if told != additive and not _two_valued(mask_BHQK):
            raise Unreadable("the mask has values other than 0 and 1, so it is not bool as --mask-convention says")
        return told, "as told"
    if not _two_valued(mask_BHQK):
        if mask_BHQK.dtype.kind != "f":
            raise Unreadable("the mask has integers other than 0 and 1; bool, 0 and 1, and additive floats are read")
        return additive, "it has values other than 0 and 1"
    if mask_BHQK.dtype.kind == "f" and not mask_BHQK.any():
        return additive, "floats that are all 0"
    queries = np.arange(mask_BHQK.shape[2])
    set_share = (mask_BHQK[:, :, queries, start + queries] != 0).mean()
    if set_share == 0.5:
        raise Unreadable("half of the mask's diagonal is True: say what True means with --mask-convention")
    return (keep, "the diagonal is True") if set_share > 0.5 else (drop, "the diagonal is False")


def _two_valued(mask: np.ndarray) -> bool:
    return mask.dtype == np.bool_ or bool(((mask == 0) | (mask == 1)).all())


FORMAT = Format(name="mask", names=(*NAMES, "query_start"), read=read)
