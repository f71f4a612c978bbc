"""Workflow commands that annotate a pull request. GitHub shows ten of each level a step; the rest are counted."""

from __future__ import annotations

from octopus.verify.command.formats.text import inconclusive_lines, summary
from octopus.verify.findings import Finding, Report, Severity, Verdict

LEVEL = {Severity.INFO: "notice", Severity.WARNING: "warning", Severity.ERROR: "error"}
MOST = 10


def render(report: Report, verdict: Verdict, command: str, most: int, verbose: bool) -> str:
    """One command a finding, and the summary as a plain line."""
    lines = []
    for severity in sorted(LEVEL, reverse=True):
        own = [finding for finding in report.findings if finding.severity is severity]
        lines += [_command(finding) for finding in own[: min(most, MOST)]]
        left = len(own) - min(most, MOST)
        lines += [f"{left} more of level {LEVEL[severity]}"] if left > 0 else []
    return "\n".join([*lines, *map(_data, inconclusive_lines(report)), _data(summary(report, verdict))]) + "\n"


def _command(finding: Finding) -> str:
    fields = [f"title={_property(finding.code)}"]
    if finding.location.source is not None:
        line = finding.location.line or 1
        fields = [f"file={_property(finding.location.source)}", f"line={line}", *fields]
    cause = "" if finding.cause is None else f". Likely cause: {finding.cause}"
    return f"::{LEVEL[finding.severity]} {','.join(fields)}::{_data(finding.message + cause)}"


def _data(text: str) -> str:
    return text.replace("%", "%25").replace("\r", "%0D").replace("\n", "%0A")


def _property(text: str) -> str:
    return _data(text).replace(":", "%3A").replace(",", "%2C")
