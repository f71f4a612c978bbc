"""A list of findings that are known and left out; by fingerprint, so that row numbers may change."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

from octopus.core.errors import ConfigError
from octopus.verify.findings import Report

SCHEMA_VERSION = 1


def write(path: Path, report: Report) -> None:
    """Writes the fingerprints of a report's findings, with their codes and places to read by."""
    entries = {
        finding.fingerprint: {
            "fingerprint": finding.fingerprint,
            "code": finding.code,
            "source": finding.location.source,
            "segments": list(finding.location.segments),
        }
        for finding in report.findings
    }
    table = {"schema_version": SCHEMA_VERSION, "findings": [entries[key] for key in sorted(entries)]}
    path.write_text(json.dumps(table, indent=1) + "\n", encoding="utf-8")


def read(path: Path) -> frozenset[str]:
    """The fingerprints of a baseline. Raises ConfigError."""
    try:
        table = json.loads(path.read_text(encoding="utf-8"))
        version = table["schema_version"]
        found = frozenset(str(entry["fingerprint"]) for entry in table["findings"])
    except (OSError, ValueError, KeyError, TypeError, RecursionError) as error:
        raise ConfigError(f"{path} is no baseline: {error!r}") from error
    if version != SCHEMA_VERSION:
        raise ConfigError(f"{path} has baseline version {version!r}, known is {SCHEMA_VERSION}: write it again")
    return found


def without(report: Report, known: frozenset[str]) -> Report:
    """The report without the findings that a baseline lists; how many those were is kept."""
    new = tuple(finding for finding in report.findings if finding.fingerprint not in known)
    return replace(report, findings=new, suppressed=report.suppressed + len(report.findings) - len(new))
