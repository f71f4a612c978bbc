"""Plans of the shapes that attention is measured on, and the rows that their threads would be without sharing.

Letters: T rows of a plan.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

import numpy as np
import torch
from shapes import branching, deep, paper_143k, ragged_143k, wide

from octopus.attention.exports import dense_view
from octopus.attention.plan import Plan, lower
from octopus.attention.rope import Rope
from octopus.core.segment import Segment

SHAPES = {"paper-143k": paper_143k, "ragged-143k": ragged_143k, "wide": wide, "deep": deep}
QUERY_HEADS = 16
ROTARY = {64: 64, 128: 128, 256: 64}
"""Rotary dimensions of a head dimension; 256 is Qwen3.5's."""


def plan_of(shape: str, scale: int = 1) -> Plan:
    """A shape, every mount with the shift that `append` gives it; lengths divided by `scale`."""
    return lower(SHAPES[shape](scale))


def without_shifts(plan: Plan) -> Plan:
    """Every mounted token seen at its own position, as a kernel without shifts would have it."""
    return replace(plan, slices=tuple(replace(s, shift=0) for s in plan.slices))


def rope_of(head_dim: int, device: str) -> Rope:
    """Frequencies of base 1e7, as Qwen3.5's."""
    exponents = torch.arange(0, ROTARY[head_dim], 2, dtype=torch.float64, device=device) / ROTARY[head_dim]
    return Rope(inverse_frequencies_R=1e7**-exponents)


@dataclass(frozen=True, kw_only=True)
class ThreadRow:
    """What one causal stretch of a plan's rows sees, as one row of text would hold it.

    Attributes:
        rows_N: Rows of the plan in the order of their positions; the stretch's own are the last.
        positions_N: Where they stand in this row.
        own: Number of the stretch's own.
    """

    rows_N: np.ndarray
    positions_N: np.ndarray
    own: int


def thread_rows(plan: Plan) -> Iterator[ThreadRow]:
    """One row for each causal square. From the dense mask, so for small plans."""
    visible_TT, positions_TT = dense_view(plan)
    for square in (s for s in plan.slices if s.causal):
        last = square.q1 - 1
        foreign = visible_TT[last].copy()
        foreign[square.q0 : square.q1] = False
        keys = np.flatnonzero(foreign)
        keys = keys[np.argsort(positions_TT[last, keys], kind="stable")]
        own = np.arange(square.q0, square.q1)
        yield ThreadRow(
            rows_N=np.concatenate([keys, own]),
            positions_N=np.concatenate([positions_TT[last, keys], plan.positions_T[own]]),
            own=len(own),
        )


def text_row_lengths(plan: Plan) -> list[int]:
    """Lengths of the rows of training without sharing: one for each stretch whose tokens no later stretch continues."""
    ends = {s.q0: s for s in plan.slices if s.causal}
    seen = np.zeros(plan.length + 1, dtype=np.int64)
    for s in plan.slices:
        keys = s.q1 - s.q0 if s.causal else s.k1 - s.k0
        seen[s.q0] += keys
        seen[s.q1] -= keys
    sees_T = seen[:-1].cumsum()
    leaves = [s for s in ends.values() if plan.subtree_ends_T[s.q1 - 1] == s.q1]
    return [int(sees_T[s.q1 - 1]) for s in leaves]


@dataclass(frozen=True, kw_only=True)
class ScalingRun:
    """One point of the scaling runs: an eighth of `paper-143k`, with so many branches and mount edges."""

    branches: int
    edges: int  # Mounts of each branch.
    skewed: bool

    @property
    def name(self) -> str:
        """Its case."""
        kind = "skewed" if self.skewed else "equal"
        return f"scaling/{kind}/B{self.branches}/E{self.edges * self.branches}"

    def segments(self) -> list[Segment]:
        """The graph. Skewed branches are 1 : 2 : 4 : 8 in length, in turn, with the same sum."""
        count = self.branches
        weights = [2 ** (i % 4) if self.skewed else 1 for i in range(count)]
        lengths = [max(int(1_024 * count * w / sum(weights)), 2) for w in weights]
        points = [n // 2 for n in lengths]
        return branching(4_096, lengths, points, [min(self.edges, count - 1)] * count, 1_536, 256)


def scaling_runs() -> Iterator[ScalingRun]:
    """B from 1 to 64; 0, B and 4B mount edges; equal branches, and skewed ones."""
    for branches in (1, 2, 4, 8, 16, 32, 64):
        for edges in (0, 1, 4):
            if edges < branches:
                yield ScalingRun(branches=branches, edges=edges, skewed=False)
    for branches in (8, 16, 32, 64):
        yield ScalingRun(branches=branches, edges=1, skewed=True)
