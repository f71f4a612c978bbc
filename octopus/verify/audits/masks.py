"""Who sees whom, against who may: exact, without tolerance."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from octopus.verify.audits.audit import Audit, NotNeeded
from octopus.verify.case import Case, known
from octopus.verify.causes import mask_cause
from octopus.verify.findings import Finding, Severity, Witness
from octopus.verify.groups import Group, by_stretch, gather
from octopus.verify.pairs import Pairs
from octopus.verify.rules import finding

LEAK, FUTURE = range(2)


def leaks(case: Case) -> Iterator[Finding]:
    """OCT101 and OCT103: visible pairs that descent and mounts do not allow."""
    lineage = known(case.lineage)
    wrong = case.judged(known(case.seen)) - known(case.allowed)

    def kind(q_N: np.ndarray, k0_N: np.ndarray, _: np.ndarray) -> np.ndarray:
        return np.where(lineage.on_path(q_N, k0_N) & (q_N != k0_N), FUTURE, LEAK)

    cause = mask_cause(case) if wrong else None
    for group in gather(case, wrong, kind=kind):
        code = ("OCT101", "OCT103")[group.kind]
        where = "is neither on its path nor mounted" if group.kind == LEAK else "comes later on the same path"
        message = f"{case.names.say(group.q)} sees {case.names.say(group.k)}, which {where}"
        yield _of_pairs(case, code, message, group, expected="hidden", actual="visible", cause=cause)


def holes(case: Case) -> Iterator[Finding]:
    """OCT102: pairs that ought to be visible and are not."""
    missing = known(case.expected) - known(case.seen) - _diagonal(case)
    cause = mask_cause(case) if missing else None
    for group in gather(case, missing):
        message = f"{case.names.say(group.q)} does not see {case.names.say(group.k)}"
        yield _of_pairs(case, "OCT102", message, group, expected="visible", actual="hidden", cause=cause)


def beyond_window(case: Case) -> Iterator[Finding]:
    """OCT116: pairs that descent allows and the declared window does not."""
    if case.subject.declared.window is None:
        raise NotNeeded("no window is declared")
    window = case.subject.declared.window
    for group in gather(case, (known(case.seen) & known(case.allowed)) - known(case.expected)):
        message = f"{case.names.say(group.q)} sees {case.names.say(group.k)}, beyond the window of {window}"
        yield _of_pairs(case, "OCT116", message, group, expected="hidden", actual="visible")


def padding(case: Case) -> Iterator[Finding]:
    """OCT109: padding that real rows see."""
    real = known(case.seen).of_rows(case.real_T)
    for group in gather(case, real - real.without_keys(~case.real_T)):
        message = f"{case.names.say(group.q)} sees the padding in row {group.k}"
        yield _of_pairs(case, "OCT109", message, group, expected="hidden", actual="visible")


def blind_rows(case: Case) -> Iterator[Finding]:
    """OCT104: rows that see nothing."""
    seen, names = known(case.seen), case.names
    blind = seen.blind_rows()
    for real, severity in ((True, Severity.ERROR), (False, Severity.WARNING)):
        rows = blind[case.query_T[blind] & (case.real_T[blind] == real)]
        for stretch, row, count in by_stretch(case, rows):
            what = "" if real else ", which is padding,"
            message = f"{names.say(row)}{what} sees no key at all"
            witness = Witness(row=row, expected="at least itself", actual="nothing")
            yield finding(
                "OCT104",
                message,
                subject=case.subject,
                count=count,
                witness=witness,
                severity=severity,
                segments=(stretch,),
            )


def diagonal(case: Case) -> Iterator[Finding]:
    """OCT105: rows that see something, but not themselves."""
    seen, names = known(case.seen), case.names
    rows = np.flatnonzero(case.query_T & case.real_T)
    blind_T = np.zeros(case.subject.length, dtype=bool)
    blind_T[seen.blind_rows()] = True
    rows = rows[~blind_T[rows] & ~seen.holds(rows, rows)]
    for stretch, row, count in by_stretch(case, rows):
        witness = Witness(query=row, key=row, expected="visible", actual="hidden")
        yield finding(
            "OCT105",
            f"{names.say(row)} does not see itself",
            subject=case.subject,
            count=count,
            witness=witness,
            segments=(stretch,),
        )


def _diagonal(case: Case) -> Pairs:
    rows = np.arange(case.subject.length, dtype=np.int64)
    edges = np.stack([rows, rows + 1], axis=1) + rows[:, None] * (case.subject.length + 1)
    return Pairs(case.subject.length, edges.reshape(-1))


def _of_pairs(
    case: Case, code: str, message: str, group: Group, *, expected: str, actual: str, cause: str | None = None
) -> Finding:
    return finding(
        code,
        message,
        subject=case.subject,
        count=group.count,
        witness=Witness(query=group.q, key=group.k, expected=expected, actual=actual),
        cause=cause,
        segments=(group.reader, group.source),
    )


AUDITS = (
    Audit(name="leaks", codes=("OCT101", "OCT103"), needs=("seen", "lineage"), run=leaks),
    Audit(name="holes", codes=("OCT102",), needs=("seen", "lineage"), run=holes),
    Audit(name="window", codes=("OCT116",), needs=("seen", "lineage"), run=beyond_window),
    Audit(name="padding", codes=("OCT109",), needs=("seen", "padding_T"), run=padding),
    Audit(name="blind rows", codes=("OCT104",), needs=("seen",), run=blind_rows),
    Audit(name="diagonal", codes=("OCT105",), needs=("seen",), run=diagonal),
)
