"""An audit: a function from a case to findings, with what it needs and what it can say."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

from octopus.verify.case import Case
from octopus.verify.findings import Check, Finding, Outcome, Report
from octopus.verify.pairs import TooManyRuns
from octopus.verify.subject import Subject


class Inconclusive(Exception):
    """The audit cannot tell. The message says why and what would help."""


class NotNeeded(Exception):
    """The audit has nothing to say about this subject. The message says why."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Audit:
    """A function with a name.

    Attributes:
        name: Unique, a few lower-case words: `leaks`.
        codes: What it can find.
        needs: Fields of the subject, or derived ones of the case (`lineage`, `seen`), that it cannot do without.
        run: Yields the findings; may raise Inconclusive, NotNeeded and TooManyRuns.
    """

    name: str
    codes: tuple[str, ...]
    needs: tuple[str, ...]
    run: Callable[[Case], Iterable[Finding]]


def run(
    audits: Sequence[Audit],
    subjects: Sequence[Subject],
    *,
    select: Sequence[str] = (),
    ignore: Sequence[str] = (),
) -> Report:
    """Runs every audit that can say something that is asked for, on every subject that has what it needs.

    Args:
        select: Prefixes of codes (`OCT1`); none means all.
        ignore: Prefixes of codes that are left out.
    """
    asked = [audit for audit in audits if any(chosen(code, select, ignore) for code in audit.codes)]
    report = Report(notes=tuple(note for subject in subjects for note in subject.notes))
    for case in map(Case, subjects):
        for audit in asked:
            report += _one(audit, case, select, ignore)
    return report


def chosen(code: str, select: Sequence[str], ignore: Sequence[str]) -> bool:
    """Whether a code is asked for."""
    return (not select or code.startswith(tuple(select))) and not code.startswith(tuple(ignore))


def missing(audit: Audit, case: Case) -> list[str]:
    """What the audit needs and the case lacks."""
    return [need for need in audit.needs if getattr(case if hasattr(case, need) else case.subject, need) is None]


def _one(audit: Audit, case: Case, select: Sequence[str], ignore: Sequence[str]) -> Report:
    def check(outcome: Outcome, reason: str = "") -> Check:
        codes = tuple(code for code in audit.codes if chosen(code, select, ignore))
        return Check(audit=audit.name, subject=case.subject.name, outcome=outcome, reason=reason, codes=codes)

    try:
        if case.mismatches and audit.needs:
            return Report(checks=(check(Outcome.SKIPPED, "the arrays contradict each other"),))
        if lacking := missing(audit, case):
            return Report(checks=(check(Outcome.SKIPPED, f"needs {', '.join(lacking)}"),))
        found = tuple(finding for finding in audit.run(case) if chosen(finding.code, select, ignore))
    except NotNeeded as reason:
        return Report(checks=(check(Outcome.SKIPPED, str(reason)),))
    except (Inconclusive, TooManyRuns) as reason:
        return Report(checks=(check(Outcome.INCONCLUSIVE, str(reason)),))
    return Report(findings=found, checks=(check(Outcome.FOUND if found else Outcome.CLEAN),))

