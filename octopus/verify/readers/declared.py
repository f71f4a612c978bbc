"""What the owner says is on purpose: from options, a configuration's window, and arrays of ranges."""

from __future__ import annotations

import numpy as np

from octopus.verify.inputs import Hints, Unreadable
from octopus.verify.readers.bag import Bag
from octopus.verify.readers.formats.magi import check_ranges
from octopus.verify.subject import FULL, Declared, Ranges

NAMES = ("bidirectional", "forbidden")


def declared(bag: Bag, hints: Hints) -> Declared:
    """From the options, `bidirectional` `[N, 2]` and `forbidden` `[N, 4]` (q0, q1, k0, k1)."""
    bidirectional, forbidden = bag.integers("bidirectional"), bag.integers("forbidden")
    if bidirectional is not None and (bidirectional.ndim != 2 or bidirectional.shape[1] != 2):
        raise Unreadable(f"bidirectional has shape {bidirectional.shape}; columns are start and stop")
    if forbidden is not None and (forbidden.ndim != 2 or forbidden.shape[1] != 4):
        raise Unreadable(f"forbidden has shape {forbidden.shape}; columns are q0, q1, k0, k1")
    ranges = None
    if forbidden is not None:
        check_ranges(forbidden, "forbidden")
        kinds = np.full((len(forbidden), 1), FULL)
        ranges = Ranges(slices_S5=np.concatenate([forbidden, kinds], axis=1), convention="forbidden")
    return Declared(
        window=hints.window,
        sinks=hints.sinks,
        varies_by_head=hints.varies_by_head,
        bidirectional=() if bidirectional is None else tuple((int(a), int(b)) for a, b in bidirectional),
        forbidden=ranges,
        loss_weights="loss_weights" in bag.arrays,
    )
