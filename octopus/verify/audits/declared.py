"""What was declared: whether it is whole and consistent, before anything is measured against it."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from octopus.verify.audits.audit import Audit, NotNeeded
from octopus.verify.case import Case, known
from octopus.verify.findings import Finding, Severity, Witness
from octopus.verify.rules import finding


def contradictions(case: Case) -> Iterator[Finding]:
    """OCT001, OCT002: arrays of one dump that disagree about its length, and fields outside their range."""
    subject, length = case.subject, case.subject.length
    for name, size in case.mismatches:
        yield finding(
            "OCT001",
            f"{name}: {size} rows, the subject has {length}",
            subject=subject,
            witness=Witness(expected=str(length), actual=str(size)),
            segments=(name,),
        )
    declared = subject.declared
    if declared.window is not None and declared.window < 1:
        yield finding("OCT002", f"a window of {declared.window} hides every row from itself", subject=subject)
    for start, stop in declared.bidirectional:
        if not 0 <= start <= stop <= length:
            yield finding("OCT002", f"the bidirectional range [{start}, {stop}) leads outside", subject=subject)


def unjudged(case: Case) -> Iterator[Finding]:
    """OCT003: a mask with nothing to compare it with."""
    if case.lineage is not None or case.malformed is not None or case.subject.boundaries is not None:
        raise NotNeeded("the descent is declared")
    yield finding(
        "OCT003",
        "nothing says which rows belong together, so leaks and missing pairs cannot be told from right ones",
        subject=case.subject,
        witness=Witness(expected="parents, tree intervals, segments, document ids or cu_seqlens"),
    )


def descent(case: Case) -> Iterator[Finding]:
    """OCT112: the declared descent itself."""
    malformed = case.malformed
    if malformed is not None:
        witness = None if malformed.row is None else Witness(row=malformed.row, actual=str(malformed))
        yield finding("OCT112", str(malformed), subject=case.subject, witness=witness)


def cumulative_lengths(case: Case) -> Iterator[Finding]:
    """OCT113: cu_seqlens."""
    boundaries, length = known(case.subject.boundaries), case.subject.length
    given_N = boundaries.queries_N
    for message, cause in _length_faults(given_N, length):
        actual = " ".join(map(str, given_N.reshape(-1)[-4:].tolist()))
        witness = Witness(expected=f"0 ... {length}, rising", actual=f"... {actual}")
        yield finding("OCT113", message, subject=case.subject, witness=witness, cause=cause)
    keys_N = boundaries.keys_N
    if keys_N is not None and not np.array_equal(keys_N, given_N):
        if len(keys_N) != len(given_N):
            message = f"{len(given_N) - 1} sequences of queries, {len(keys_N) - 1} of keys"
            yield finding("OCT113", message, subject=case.subject)
        elif (np.diff(given_N) > np.diff(keys_N)).any():
            which = int(np.flatnonzero(np.diff(given_N) > np.diff(keys_N))[0])
            message = f"sequence {which} has more queries than keys"
            yield finding("OCT113", message, subject=case.subject)
    if case.subject.padding_T is not None and len(given_N) > 1:
        yield from _padding_shared(case, given_N)


def against_time(case: Case) -> Iterator[Finding]:
    """OCT114: views that no order of events can have made."""
    lineage, names = known(case.lineage), case.names
    if lineage.times_T is None and not any(run.mounts for run in lineage.runs):
        raise NotNeeded("nothing is mounted, and no times are given")
    for index in lineage.circular:
        run = lineage.runs[index]
        for mount in run.mounts:
            message = f"{names.say(run.start)} mounts {names.say(mount.k1 - 1)}, which depends on it"
            yield finding(
                "OCT114",
                message,
                subject=case.subject,
                witness=Witness(query=run.start, key=mount.k1 - 1, expected="written before", actual="a circle"),
                segments=(names.of(run.start), names.of(mount.k1 - 1)),
            )
    times_T = lineage.times_T
    if times_T is None:
        return
    for run in lineage.runs:
        parts = [(mount.k0, mount.k1, "mounts") for mount in run.mounts]
        if run.before >= 0:
            parts.append((run.before, run.before + 1, "continues"))
        for k0, k1, verb in parts:
            k = k0 + int(np.argmax(times_T[k0:k1]))
            if times_T[k] >= times_T[run.start]:
                message = (
                    f"{names.say(run.start)} was written at {times_T[run.start]} and {verb} {names.say(k)}, "
                    f"which was written at {times_T[k]}"
                )
                yield finding(
                    "OCT114",
                    message,
                    subject=case.subject,
                    witness=Witness(query=run.start, key=k, expected="written before", actual="written after"),
                    segments=(names.of(run.start), names.of(k)),
                )


def _length_faults(given_N: np.ndarray, length: int) -> Iterator[tuple[str, str | None]]:
    if given_N.ndim != 1 or given_N.dtype.kind not in "iu" or len(given_N) < 2:
        yield f"cu_seqlens must be a list of at least two whole numbers, came shape {given_N.shape}", None
        return
    given_N = given_N.astype(np.int64)
    if given_N[0] != 0:
        yield f"cu_seqlens start at {given_N[0]}, not at 0", "lengths were given instead of their running sum"
    falls = np.flatnonzero(np.diff(given_N) <= 0)
    if len(falls):
        at = int(falls[0])
        cause = "the list was padded with its last value" if (np.diff(given_N)[at:] == 0).all() else None
        yield f"cu_seqlens do not rise: entry {at} is {given_N[at]}, entry {at + 1} is {given_N[at + 1]}", cause
    if given_N[-1] != length:
        whole, rest = divmod(int(given_N[-1]), length) if length else (0, 1)
        cause = None
        if given_N[-1] < length:
            cause = f"the last {length - given_N[-1]} rows belong to no sequence"
        elif whole > 1 and not rest:
            cause = f"it is {whole} times the length: another axis was flattened in"
        yield f"cu_seqlens end at {given_N[-1]}, the row has {length} tokens", cause


def _padding_shared(case: Case, given_N: np.ndarray) -> Iterator[Finding]:
    sequence_T = np.searchsorted(given_N, np.arange(case.subject.length), side="right")
    shared = np.intersect1d(sequence_T[case.real_T], sequence_T[~case.real_T])
    for number in shared[:1].tolist():
        row = int(np.flatnonzero((sequence_T == number) & ~case.real_T)[0])
        yield finding(
            "OCT113",
            f"sequence {number - 1} holds real tokens and padding, the first in row {row}",
            subject=case.subject,
            count=len(shared),
            witness=Witness(row=row, expected="a sequence of its own", actual="part of a real one"),
            severity=Severity.WARNING,
        )


AUDITS = (
    Audit(name="contradictions", codes=("OCT001", "OCT002"), needs=(), run=contradictions),
    Audit(name="unjudged mask", codes=("OCT003",), needs=("seen",), run=unjudged),
    Audit(name="descent", codes=("OCT112",), needs=("descent",), run=descent),
    Audit(name="cumulative lengths", codes=("OCT113",), needs=("boundaries",), run=cumulative_lengths),
    Audit(name="time", codes=("OCT114",), needs=("lineage",), run=against_time),
)
