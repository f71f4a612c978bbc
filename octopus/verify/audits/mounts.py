"""Where mounted tokens are seen."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from octopus.verify.audits.audit import Audit, NotNeeded
from octopus.verify.case import Case, known
from octopus.verify.findings import Finding, Witness
from octopus.verify.lineage import Lineage
from octopus.verify.pairs import guard
from octopus.verify.rules import finding
from octopus.verify.runs import UNKNOWN, Piece, Run
from octopus.verify.subject import Ranges


def shifts(case: Case) -> Iterator[Finding]:
    """OCT204: the shift of each slice against the place that its mount gives to the keys."""
    mask = case.subject.mask
    if not isinstance(mask, Ranges) or mask.shifts_S is None:
        raise NotNeeded("no shifts are given")
    lineage, names = known(case.lineage), case.names
    ids_T = _ids(case, lineage)
    table_N4 = _pieces(lineage)
    starts_R = np.array([run.start for run in lineage.runs])
    first_R = np.searchsorted(table_N4[:, 0], np.arange(len(starts_R) + 1))
    told: set[tuple[str, str]] = set()
    for (q0, q1, k0, k1, _), shift in zip(mask.slices_S5.tolist(), mask.shifts_S.tolist(), strict=True):
        if q0 >= q1 or k0 >= k1:
            continue
        run0, run1 = np.searchsorted(starts_R, [q0, q1 - 1], side="right") - 1
        near_N4 = table_N4[first_R[run0] : first_R[run1 + 1]]
        near_N4 = near_N4[(near_N4[:, 1] < k1) & (near_N4[:, 2] > k0)]
        k_N = np.maximum(near_N4[:, 1], k0)
        right_N = near_N4[:, 3] + k_N - ids_T[k_N]
        for wrong in np.flatnonzero(right_N != shift).tolist():
            q, k = max(q0, int(starts_R[near_N4[wrong, 0]])), int(k_N[wrong])
            place = names.of(q), names.of(k)
            if place in told:
                continue
            told.add(place)
            seen_at, right = int(ids_T[k]) + shift, int(ids_T[k] + right_N[wrong])
            yield finding(
                "OCT204",
                f"{names.say(q)} sees {names.say(k)} at position {seen_at}, its path and mounts put it at {right}",
                subject=case.subject,
                witness=Witness(query=q, key=k, expected=f"shift {right_N[wrong]}", actual=f"shift {shift}"),
                cause=_shift_cause(shift, int(right_N[wrong])),
                segments=place,
            )


def append_views(case: Case) -> Iterator[Finding]:
    """OCT214: views of append mounts occupy exactly 0 .. n-1."""
    lineage = known(case.lineage)
    if not any(run.mounts for run in lineage.runs):
        raise NotNeeded("nothing is mounted")
    ids_T, total = _ids(case, lineage), 0
    shift_of = {(m.at, m.k0): m.shift for run in lineage.runs for m in run.mounts}
    for run in lineage.runs:
        if not run.mounts or not _appended(lineage, run):
            continue
        total += run.depth + sum(mount.k1 - mount.k0 for mount in run.mounts)
        guard(total // 8)
        outside = [_seen_at(ids_T, lineage, run, see, shift_of) for see in lineage.outside(run)]
        seen_at = np.concatenate([ids_T[run.start : run.start + 1], *outside])
        fault = _first_fault(np.sort(seen_at))
        if fault is not None:
            names = case.names
            yield finding(
                "OCT214",
                f"the view of {names.say(run.start)} holds {len(seen_at)} tokens, and {fault}",
                subject=case.subject,
                witness=Witness(row=run.start, expected=f"each of 0 .. {len(seen_at) - 1} once", actual=fault),
                segments=(names.of(run.start),),
            )


def _ids(case: Case, lineage: Lineage) -> np.ndarray:
    positions = case.subject.positions
    ids_T: np.ndarray = lineage.positions_T if positions is None else positions.ids_AT[0]
    return ids_T


def _pieces(lineage: Lineage) -> np.ndarray:
    """`[N, 4]`: run, keys [k0, k1), and the position of key row 0 if the piece reached so far; known ones only."""
    own = [(index, run.start, run.stop, run.position) for index, run in enumerate(lineage.runs)]
    table_N4 = np.concatenate([lineage.pieces()[:, :4], np.array(own, dtype=np.int64).reshape(-1, 4)])
    table_N4 = table_N4[table_N4[:, 3] != UNKNOWN]
    table_N4[:, 3] -= table_N4[:, 1]
    ordered_N4: np.ndarray = table_N4[np.argsort(table_N4[:, 0], kind="stable")]
    return ordered_N4


def _appended(lineage: Lineage, run: Run) -> bool:
    """Whether all mounts that the run sees were placed by append."""
    at: Run | None = run
    while at is not None:
        if any(mount.placement != "append" for mount in at.mounts):
            return False
        at = lineage.runs[at.parent] if at.parent >= 0 else None
    return True


def _seen_at(
    ids_T: np.ndarray, lineage: Lineage, run: Run, see: Piece, shift_of: dict[tuple[int, int], int | None]
) -> np.ndarray:
    """The positions at which a piece is seen: by its mount's own shift where that is given."""
    keys: np.ndarray = ids_T[see.k0 : see.k1]
    if not see.mounted:
        return keys
    at: Run | None = run
    while at is not None:
        shift = shift_of.get((at.start, see.k0))
        if shift is not None:
            return keys + shift
        at = lineage.runs[at.parent] if at.parent >= 0 else None
    return np.arange(see.at, see.at + len(keys))


def _first_fault(positions: np.ndarray) -> str | None:
    wrong = np.flatnonzero(positions != np.arange(len(positions)))
    if not len(wrong):
        return None
    at = int(wrong[0])
    if at and positions[at] == positions[at - 1]:
        return f"two of them are at position {positions[at]}"
    return f"none of them is at position {at}"


def _shift_cause(shift: int, right: int) -> str | None:
    if shift == 0:
        return "the mount was not shifted"
    return "the shift has the wrong sign" if shift == -right else None


AUDITS = (
    Audit(name="shifts", codes=("OCT204",), needs=("seen", "lineage"), run=shifts),
    Audit(name="append views", codes=("OCT214",), needs=("lineage",), run=append_views),
)
