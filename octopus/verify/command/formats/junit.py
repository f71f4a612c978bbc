"""JUnit XML: one test case for each audit and subject."""

from __future__ import annotations

import re
from xml.sax.saxutils import escape, quoteattr

from octopus.verify.command.formats.text import finding_lines
from octopus.verify.findings import Check, Finding, Outcome, Report, Verdict

CONTROL = re.compile("[^\t\n\r\x20-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")
"""Characters that XML 1.0 does not allow."""


def render(report: Report, verdict: Verdict, command: str, most: int, verbose: bool) -> str:
    """All checks, each with what it found; what no check has named comes last, by itself."""
    left = list(report.findings)
    cases = []
    for check in report.checks:
        own = [f for f in left if f.location.subject == check.subject and f.code in check.codes]
        if check.outcome is not Outcome.FOUND:
            own = []
        left = [finding for finding in left if finding not in own]
        cases.append(_case(f"{command}.{check.subject}", check.audit, _body(check, own)))
    for finding in left:
        cases.append(_case(f"{command}.{finding.location.subject}", finding.code, _failure(finding)))
    numbers = " ".join(
        f'{name}="{sum(f"<{mark} " in case for case in cases)}"'
        for name, mark in (("tests", "testcase"), ("failures", "failure"), ("errors", "error"), ("skipped", "skipped"))
    )
    body = "\n".join(cases)
    return (
        '<?xml version="1.0" encoding="UTF-8"?>\n'
        f'<testsuites {numbers}>\n<testsuite name="octopus-verify" {numbers}>\n{body}\n</testsuite>\n</testsuites>\n'
    )


def _case(group: str, name: str, body: str) -> str:
    return f"<testcase classname={_attribute(group)} name={_attribute(name)}>{body}</testcase>"


def _body(check: Check, findings: list[Finding]) -> str:
    if check.outcome is Outcome.SKIPPED:
        return f"<skipped message={_attribute(check.reason)}/>"
    if check.outcome is Outcome.INCONCLUSIVE:
        return f"<error message={_attribute(check.reason)}/>"
    return "".join(map(_failure, findings))


def _failure(finding: Finding) -> str:
    text = "\n".join(finding_lines(finding))
    return f"<failure type={_attribute(finding.code)} message={_attribute(finding.message)}>{_text(text)}</failure>"


def _attribute(text: str) -> str:
    return quoteattr(CONTROL.sub("?", text))


def _text(text: str) -> str:
    return escape(CONTROL.sub("?", text))
