"""The keys of a plan as a kernel without shifts sees them: the pack's, then a copy of each part mounted with a shift.

Keys arrive unrotated in a packed pass, so a mounted part can be rotated, once, to where its readers see it. Then every
query is rotated once as well, and one call computes rows whose mounts all have different shifts. What that costs is
memory for the copies while the layer runs: two rows (key and value) a mounted token, no matter how many rows read it.
The graph's pages know nothing of it: they keep each key once, as it was written.

Letters: T rows of the pack, L keys: T of the pack, then the copies.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace

import numpy as np

from octopus.attention.plan import Plan, Slice


@dataclass(frozen=True, kw_only=True, eq=False)
class KeyTable:
    """Keys, and slices over them.

    Attributes:
        rows_L: The row of the pack that each key is.
        positions_L: The position at which it is seen.
        slices: The plan's visible pairs, with key numbers instead of rows. All shifts are 0.
        length: Number T of rows of the pack; the first T keys are these rows.
    """

    rows_L: np.ndarray
    positions_L: np.ndarray
    slices: tuple[Slice, ...]
    length: int

    @property
    def unseen(self) -> np.ndarray:
        """Keys that no row sees, ascending."""
        return np.flatnonzero(_covered(len(self.rows_L), ((s.k0, s.k1) for s in self.slices)) == 0)

    @property
    def blind(self) -> np.ndarray:
        """Rows that see no key, ascending."""
        return np.flatnonzero(_covered(self.length, ((s.q0, s.q1) for s in self.slices)) == 0)


def key_table(plan: Plan, *, rotates: bool, gathers: bool = False) -> KeyTable:
    """Lowers a plan's shifts to copies of keys.

    Args:
        plan: who sees whom.
        rotates: whether the model has positions. Without them a shift means nothing.
        gathers: copy all mounted parts, so that those of one reader lie side by side and need one call, not many.
    """
    rows, positions, slices = [np.arange(plan.length)], [plan.positions_T], []
    length = plan.length
    made: dict[tuple[int, int, int], int] = {}
    # In the readers' order, so that the parts of one reader lie side by side.
    for s in sorted(plan.slices, key=lambda s: (s.q0, s.q1, s.k0)):
        shift = s.shift if rotates else 0
        on_path = s.causal or s.k1 == s.q0
        if shift == 0 and (on_path or not gathers):
            slices.append(replace(s, shift=0))
            continue
        part = (s.k0, s.k1, shift)
        if part not in made:
            made[part] = length
            rows.append(np.arange(s.k0, s.k1))
            positions.append(plan.positions_T[s.k0 : s.k1] + shift)
            length += s.k1 - s.k0
        start = made[part]
        slices.append(replace(s, k0=start, k1=start + s.k1 - s.k0, shift=0))
    return KeyTable(
        rows_L=np.concatenate(rows),
        positions_L=np.concatenate(positions),
        slices=tuple(s for s in slices if s.pairs),
        length=plan.length,
    )


def _covered(length: int, spans: Iterable[tuple[int, int]]) -> np.ndarray:
    steps = np.zeros(length + 1, dtype=np.int64)
    for start, stop in spans:
        steps[start] += 1
        steps[stop] -= 1
    return steps[:-1].cumsum()
