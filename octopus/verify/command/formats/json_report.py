"""For programs: `report.schema.json` describes it."""

from __future__ import annotations

import json
from dataclasses import asdict
from typing import Any

from octopus import __version__
from octopus.verify.findings import Finding, Report, Verdict
from octopus.verify.rules import rules

SCHEMA_VERSION = 1


def render(report: Report, verdict: Verdict, command: str, most: int, verbose: bool) -> str:
    """Everything; `most` and `verbose` do not apply."""
    table = {
        "schema_version": SCHEMA_VERSION,
        "tool": {"name": "octopus-verify", "version": __version__},
        "command": command,
        "verdict": verdict.value,
        "findings": [plain(finding) for finding in report.findings],
        "checks": [{**asdict(check), "outcome": check.outcome.value} for check in report.checks],
        "notes": list(report.notes),
        "suppressed": report.suppressed,
    }
    return json.dumps(table, indent=1) + "\n"


def plain(finding: Finding) -> dict[str, Any]:
    """A finding as JSON values."""
    return {
        **asdict(finding),
        "severity": finding.severity.word,
        "title": rules()[finding.code].title,
        "fingerprint": finding.fingerprint,
        "location": {**asdict(finding.location), "segments": list(finding.location.segments)},
    }
