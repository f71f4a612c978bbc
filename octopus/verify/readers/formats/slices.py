"""Our own plan's slices, `[S, 5]` or `[S, 6]`: q0, q1, k0, k1, kind (0 full, 1 causal, 2 inverse, 3 both), shift."""

from __future__ import annotations

from octopus.verify.inputs import Hints, Unreadable
from octopus.verify.readers.bag import Bag
from octopus.verify.readers.formats.magi import check_ranges
from octopus.verify.readers.part import Format, Part
from octopus.verify.subject import BICAUSAL, FULL, Ranges


def read(bag: Bag, hints: Hints) -> list[Part]:
    """One part. The length is one past the last row or key, unless `length` says more."""
    slices = bag.integers("slices")
    if slices is None:
        return []
    if slices.ndim != 2 or slices.shape[1] not in (5, 6) or ((slices[:, 4] < FULL) | (slices[:, 4] > BICAUSAL)).any():
        raise Unreadable(f"slices has shape {slices.shape}; columns are q0, q1, k0, k1, kind 0 to 3 and shift")
    check_ranges(slices[:, :4], "slices")
    length = bag.number("length")
    shifts = slices[:, 5] if slices.shape[1] == 6 else None
    ranges = Ranges(slices_S5=slices[:, :5], shifts_S=shifts, convention="slices")
    return [
        Part(fields={"mask": ranges}, length=int(slices[:, (1, 3)].max(initial=0)) if length is None else length)
    ]


FORMAT = Format(name="slices", names=("slices", "length"), read=read)
