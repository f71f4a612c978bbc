"""Position ids against the depth on the path. Exact."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from octopus.verify.audits.audit import Audit, NotNeeded
from octopus.verify.case import Case, known
from octopus.verify.causes import position_cause
from octopus.verify.findings import Finding, Witness
from octopus.verify.groups import by_stretch, gather
from octopus.verify.lineage import Lineage
from octopus.verify.rules import finding
from octopus.verify.runs import UNKNOWN

OFFSETS_SHOWN = 6


def depth(case: Case) -> Iterator[Finding]:
    """OCT201: every row against its depth on the path."""
    lineage, ids_T = known(case.lineage), _ids(case)
    wrong_T = _judged(case, lineage) & (ids_T != lineage.positions_T)
    cause = position_cause(case) if wrong_T.any() else None
    for stretch, row, count in by_stretch(case, np.flatnonzero(wrong_T)):
        expected, actual = int(lineage.positions_T[row]), int(ids_T[row])
        yield finding(
            "OCT201",
            f"{case.names.say(row)} is at position {actual}, its path puts it at {expected}",
            subject=case.subject,
            count=count,
            witness=Witness(row=row, expected=str(expected), actual=str(actual)),
            cause=cause,
            segments=(stretch,),
        )


def steps(case: Case) -> Iterator[Finding]:
    """OCT202 and OCT203: from each row to the next on its path."""
    ids_T = _ids(case)
    lineage = case.lineage
    if lineage is None:
        yield from _steps_alone(case, ids_T)
        return
    before_T, rows = lineage.predecessors_T, np.arange(case.subject.length)
    judged_T = _judged(case, lineage) & (before_T >= 0)
    judged_T[judged_T] &= _judged(case, lineage)[before_T[judged_T]]
    start_T = np.zeros(len(rows), dtype=bool)
    start_T[[run.start for run in lineage.runs]] = start_T[case.names.starts] = True
    taken_T = lineage.positions_T - lineage.positions_T[before_T]
    wrong_T = judged_T & (ids_T - ids_T[before_T] != taken_T)
    for code, chosen_T, what in (
        ("OCT202", wrong_T & ~start_T, "follows"),
        ("OCT203", wrong_T & start_T, "starts behind"),
    ):
        for stretch, row, count in by_stretch(case, np.flatnonzero(chosen_T)):
            above = int(before_T[row])
            expected, actual = int(ids_T[above] + taken_T[row]), int(ids_T[row])
            yield finding(
                code,
                f"{case.names.say(row)} is at position {actual} and {what} {case.names.say(above)} at {ids_T[above]}",
                subject=case.subject,
                count=count,
                witness=Witness(row=row, expected=str(expected), actual=str(actual)),
                segments=(stretch, case.names.of(above)),
            )


def distances(case: Case) -> Iterator[Finding]:
    """OCT204: pairs on one path whose distance is wrong, with a histogram of how far it is off."""
    lineage, ids_T = known(case.lineage), _ids(case)
    pairs = case.seen if case.seen is not None else known(case.allowed)
    judged_T = _judged(case, lineage)
    off_T = np.where(judged_T, ids_T - lineage.positions_T, 0)
    if len(np.unique(off_T[judged_T])) < 2:
        return
    judged = case.judged(pairs).of_rows(judged_T)
    offsets: dict[int, int] = {}

    def kind(q_N: np.ndarray, k0_N: np.ndarray, k1_N: np.ndarray) -> np.ndarray:
        wrong_N = np.where(lineage.on_path(k0_N, q_N) & judged_T[k0_N], off_T[q_N] - off_T[k0_N], 0)
        values, place = np.unique(wrong_N, return_inverse=True)
        for value, count in zip(values.tolist(), np.bincount(place.reshape(-1), k1_N - k0_N).tolist(), strict=True):
            offsets[value] = offsets.get(value, 0) + int(count)
        is_wrong_N: np.ndarray = wrong_N != 0
        return is_wrong_N

    groups = gather(case, judged, kind=kind, cuts=np.flatnonzero(np.diff(off_T, prepend=0)))
    most = sorted((pair for pair in offsets.items() if pair[0]), key=lambda pair: -pair[1])[:OFFSETS_SHOWN]
    cause = "distances are off by " + ", ".join(f"{value:+d} ({count} pairs)" for value, count in most)
    for group in groups:
        if group.kind:
            right = int(lineage.positions_T[group.q] - lineage.positions_T[group.k])
            actual = int(ids_T[group.q] - ids_T[group.k])
            reader, source = case.names.say(group.q), case.names.say(group.k)
            yield finding(
                "OCT204",
                f"{reader} sees {source} at distance {actual}, not {right}",
                subject=case.subject,
                count=group.count,
                witness=Witness(query=group.q, key=group.k, expected=str(right), actual=str(actual)),
                cause=cause,
                segments=(group.reader, group.source),
            )


def multiple_axes(case: Case) -> Iterator[Finding]:
    """OCT209: position ids of several axes."""
    ids_AT = known(case.subject.positions).ids_AT
    axes = len(ids_AT)
    if axes == 1:
        raise NotNeeded("positions have one axis")
    rows = np.flatnonzero(case.real_T)
    if axes not in (3, 4) or not len(rows):
        message = f"positions have {axes} axes; 3, or 4 with text positions first, are known"
        yield finding("OCT209", message, subject=case.subject, witness=Witness(actual=str(axes)))
        return
    first = int(rows[0])
    at_first = ids_AT[:, first].tolist()
    if len(set(at_first)) > 1:
        message = f"the axes differ at the first token: {at_first}"
        cause = "batch rows were taken for axes, or axes for batch rows"
        witness = Witness(row=first, expected="equal", actual=str(at_first))
        yield finding("OCT209", message, subject=case.subject, witness=witness, cause=cause)
    lowest = ids_AT[:, rows].min(axis=1)
    late = np.flatnonzero(ids_AT[:, first] > lowest)
    if len(late) or (ids_AT[:, first] != 0).any():
        message = f"positions of the first real token, row {first}, are {at_first}: they do not begin there"
        side = "they were padded on the other side than the tokens" if first else None
        witness = Witness(row=first, expected="0", actual=str(at_first))
        yield finding("OCT209", message, subject=case.subject, witness=witness, cause=side)


def resumption(case: Case) -> Iterator[Finding]:
    """OCT208: where a cache goes on after a rewind or an eviction."""
    resume = known(case.subject.resume)
    kept = resume.kept_positions_N
    right = int(kept.max()) + 1 if len(kept) else 0
    if resume.next_position != right:
        cause = "the number of kept rows is taken for the depth" if resume.next_position == len(kept) else None
        yield finding(
            "OCT208",
            f"the next token goes to position {resume.next_position}, the last kept one is at {right - 1}",
            subject=case.subject,
            witness=Witness(expected=str(right), actual=str(resume.next_position)),
            cause=cause,
        )


def _ids(case: Case) -> np.ndarray:
    ids_T: np.ndarray = known(case.subject.positions).ids_AT[0]
    return ids_T


def _judged(case: Case, lineage: Lineage) -> np.ndarray:
    judged_T: np.ndarray = case.real_T & (lineage.positions_T != UNKNOWN)
    return judged_T


def _steps_alone(case: Case, ids_T: np.ndarray) -> Iterator[Finding]:
    """Without a descent positions may only rise by one or fall: a fall begins a document or a branch."""
    both_T = case.real_T[1:] & case.real_T[:-1]
    wrong_T = np.append(False, both_T & ((np.diff(ids_T) > 1) | (np.diff(ids_T) == 0)))
    for stretch, row, count in by_stretch(case, np.flatnonzero(wrong_T)):
        yield finding(
            "OCT202",
            f"{case.names.say(row)} is at position {ids_T[row]}, the row before it at {ids_T[row - 1]}",
            subject=case.subject,
            count=count,
            witness=Witness(row=row, expected=f"{ids_T[row - 1] + 1}, or a new start", actual=str(ids_T[row])),
            segments=(stretch,),
        )


AUDITS = (
    Audit(name="depth", codes=("OCT201",), needs=("positions", "lineage"), run=depth),
    Audit(name="steps", codes=("OCT202", "OCT203"), needs=("positions",), run=steps),
    Audit(name="distances", codes=("OCT204",), needs=("positions", "lineage"), run=distances),
    Audit(name="resumption", codes=("OCT208",), needs=("resume",), run=resumption),
    Audit(name="multiple axes", codes=("OCT209",), needs=("positions",), run=multiple_axes),
)
