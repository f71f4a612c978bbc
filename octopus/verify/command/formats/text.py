"""For people: the smallest example, the likely cause, what to do."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

from octopus.verify.findings import Finding, Outcome, Report, Verdict, Witness
from octopus.verify.rules import rules


def render(report: Report, verdict: Verdict, command: str, most: int, verbose: bool) -> str:
    """The report as text; machine formats hold more."""
    lines = [f"note: {note}" for note in report.notes]
    for finding in report.findings[:most]:
        lines += [*finding_lines(finding), ""]
    if len(report.findings) > most:
        lines += [f"... and {len(report.findings) - most:,} more", ""]
    if verbose:
        lines += [f"{one.outcome.value}: {one.audit} on {one.subject}{_why(one.reason)}" for one in report.checks]
    else:
        lines += inconclusive_lines(report)
    lines.append(summary(report, verdict))
    return "\n".join(lines) + "\n"


def finding_lines(finding: Finding) -> Iterator[str]:
    """One finding."""
    yield f"{finding.code} {finding.severity.word}: {rules()[finding.code].title}"
    yield f"  {finding.message}"
    place = finding.location
    where = [place.source or "", f"line {place.line}" if place.line else "", place.subject or ""]
    where += [f"layer {place.layer}"] if place.layer is not None else []
    where += [f"head {place.head}"] if place.head is not None else []
    yield "  where: " + ", ".join(part for part in where if part)
    if finding.witness is not None and (said := witness_text(finding.witness)):
        yield f"  example: {said}"
    if finding.count > 1:
        yield f"  times: {finding.count:,}"
    if finding.cause:
        yield f"  likely cause: {finding.cause}"
    if finding.fix:
        yield f"  fix: {finding.fix}"


def witness_text(witness: Witness) -> str:
    """The example as a few words."""
    parts = [
        f"query {witness.query}" if witness.query is not None else "",
        f"key {witness.key}" if witness.key is not None else "",
        f"row {witness.row}" if witness.row is not None else "",
        f"expected {witness.expected}" if witness.expected else "",
        f"found {witness.actual}" if witness.actual else "",
    ]
    return ", ".join(part for part in parts if part)


def inconclusive_lines(report: Report) -> list[str]:
    """What could not tell, always said."""
    checks = [check for check in report.checks if check.outcome is Outcome.INCONCLUSIVE]
    return [f"inconclusive: {check.audit} on {check.subject}{_why(check.reason)}" for check in checks]


def summary(report: Report, verdict: Verdict) -> str:
    """The last line."""
    outcomes = Counter(check.outcome for check in report.checks)
    checked = outcomes[Outcome.CLEAN] + outcomes[Outcome.FOUND]
    levels = Counter(finding.severity.word for finding in report.findings)
    found = ", ".join(f"{count} {level}" for level, count in sorted(levels.items())) or "no findings"
    hidden = f", {report.suppressed} known" if report.suppressed else ""
    if not checked and verdict is Verdict.INCONCLUSIVE:
        return "inconclusive: nothing could be checked; -v lists what each audit needs"
    return f"{verdict.value}: {found}{hidden}; {checked} checks ran, {outcomes[Outcome.SKIPPED]} had nothing to check"


def _why(reason: str) -> str:
    return f" ({reason})" if reason else ""
