"""Keys before and after rotation: `k_pre` and `k_rot`, `[T, G, D]`, or `[B, G, T, D]` as Hugging Face caches them."""

from __future__ import annotations

from octopus.verify.facets import KeyCache
from octopus.verify.inputs import Hints, Unreadable
from octopus.verify.readers.bag import Bag
from octopus.verify.readers.part import Format, Part


def read(bag: Bag, hints: Hints) -> list[Part]:
    """One part a batch row."""
    before, after = bag.array("k_pre"), bag.array("k_rot")
    if before is None and after is None:
        return []
    if before is None or after is None or before.shape != after.shape or before.ndim not in (3, 4):
        raise Unreadable("k_pre and k_rot belong together, both [T, G, D] or both [B, G, T, D]")
    if before.dtype.kind != "f" or after.dtype.kind != "f":
        raise Unreadable("k_pre and k_rot should be floats")
    notes = () if before.ndim == 3 else ("k_pre and k_rot were read as [batch, heads, tokens, dim]",)
    before_BTGD, after_BTGD = (x[None] if x.ndim == 3 else x.swapaxes(1, 2) for x in (before, after))
    return [
        Part(
            fields={
                "keys": KeyCache(
                    before_TGD=before_BTGD[row],
                    after_TGD=after_BTGD[row],
                    dtype=bag.arrays["k_rot"].dtype,
                    layer=bag.number("layer"),
                )
            },
            length=before_BTGD.shape[1],
            notes=notes,
        )
        for row in range(len(before_BTGD))
    ]


FORMAT = Format(name="key_cache", names=("k_pre", "k_rot", "layer"), read=read)
