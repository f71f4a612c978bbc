"""A table for a comment or a job summary."""

from __future__ import annotations

from octopus.verify.command.formats.text import inconclusive_lines, summary
from octopus.verify.findings import Report, Verdict


def render(report: Report, verdict: Verdict, command: str, most: int, verbose: bool) -> str:
    """The summary, the findings and what could not tell."""
    lines = [f"**octopus-verify {command}** - {_cell(summary(report, verdict))}"]
    if report.findings:
        lines += ["", "| code | level | where | what | times | likely cause |", "|---|---|---|---|---|---|"]
        for finding in report.findings[:most]:
            place = finding.location
            where = ", ".join(filter(None, [place.source, place.subject, " / ".join(place.segments)]))
            head = [finding.code, finding.severity.word, where, finding.message]
            cells = [*head, f"{finding.count:,}", finding.cause or ""]
            lines.append("| " + " | ".join(map(_cell, cells)) + " |")
        if len(report.findings) > most:
            lines += ["", f"{len(report.findings) - most:,} more"]
    return "\n".join([*lines, *(f"\n{_cell(line)}" for line in inconclusive_lines(report))]) + "\n"


def _cell(text: str) -> str:
    for mark in "\\|`<>*_[]":
        text = text.replace(mark, f"\\{mark}")
    return text.replace("\n", " ")
