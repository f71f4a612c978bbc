"""Octopus's own objects as subjects: the descent from the raw segments, the mask from the plan under audit."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from octopus.verify.facets import LossTerms
from octopus.verify.subject import CAUSAL, FULL, Descent, Mount, Positions, Ranges, Stretch, Subject

if TYPE_CHECKING:
    from collections.abc import Mapping

    from octopus.attention.plan import Plan
    from octopus.core.segment import Segment


def plan_subject(plan: Plan, *, name: str = "plan", sampled_T: np.ndarray | None = None) -> Subject:
    """A plan against the segments that it was made from.

    Args:
        sampled_T: bool; the rows that the policy sampled, for the rule about tokens right after a mount.
    """
    rows_S5 = [(s.q0, s.q1, s.k0, s.k1, CAUSAL if s.causal else FULL) for s in plan.slices]
    predicted = np.flatnonzero(plan.predecessors_T >= 0)
    return Subject(
        name=name,
        length=plan.length,
        mask=Ranges(
            slices_S5=np.array(rows_S5, dtype=np.int64).reshape(-1, 5),
            shifts_S=np.array([s.shift for s in plan.slices], dtype=np.int64),
        ),
        descent=segments_descent(plan.starts),
        positions=Positions(ids_AT=plan.positions_T[None], dtype=str(plan.positions_T.dtype)),
        loss=LossTerms(
            token_rows_N=predicted, predictor_rows_N=plan.predecessors_T[predicted], sampled_T=sampled_T
        ),
    )


def segments_descent(starts: Mapping[Segment, int]) -> Descent:
    """The descent of segments that are laid out from these rows on, read from their parents and mounts alone."""
    length = max((start + len(segment.tokens) for segment, start in starts.items()), default=0)
    parents_T = np.arange(-1, length - 1)
    times_T = np.zeros(length, dtype=np.int64)
    mounts: list[Mount] = []
    stretches = []
    for segment, start in starts.items():
        if not segment.tokens:
            continue
        parents_T[start], entered = _entrance(segment, starts)
        for other in entered:
            mounts += _mounts(other, start, starts)
        for first, order in segment.stamps:
            times_T[start + first : start + len(segment.tokens)] = order
        stretches.append(Stretch(f"segment {segment.index}", start, start + len(segment.tokens)))
    return Descent(parents_T=parents_T, stretches=tuple(stretches), mounts=tuple(mounts), times_T=times_T)


def _entrance(segment: Segment, starts: Mapping[Segment, int]) -> tuple[int, list[Segment]]:
    """The row before a segment's first, and the segments whose mounts become visible in between, oldest first."""
    entered = [segment]
    place = segment.parent
    while place is not None and place.length == 0:
        entered.append(place.segment)
        place = place.segment.parent
    return -1 if place is None else starts[place.segment] + place.length - 1, entered[::-1]


def _mounts(segment: Segment, at: int, starts: Mapping[Segment, int]) -> list[Mount]:
    return [
        Mount(
            at=at,
            k0=starts[part.segment] + part.start,
            k1=starts[part.segment] + part.stop,
            shift=part.shift,
            placement=mount.placement,
        )
        for mount in segment.mounts
        for part in mount.parts
    ]
