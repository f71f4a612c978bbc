"""SARIF 2.1.0, for code scanning: stable rule ids, relative paths, and fingerprints without row numbers."""

from __future__ import annotations

import json
from typing import Any
from urllib.parse import quote

from octopus import __version__
from octopus.verify.findings import Finding, Report, Severity, Verdict
from octopus.verify.rules import Rule, rules

LEVEL = {Severity.INFO: "note", Severity.WARNING: "warning", Severity.ERROR: "error"}
IN_MEMORY = "in-memory"


def render(report: Report, verdict: Verdict, command: str, most: int, verbose: bool) -> str:
    """Everything; `most` and `verbose` do not apply."""
    codes = list(dict.fromkeys(finding.code for finding in report.findings))
    run = {
        "tool": {
            "driver": {
                "name": "octopus-verify",
                "version": __version__,
                "rules": [_rule(rules()[code]) for code in codes],
            }
        },
        "results": [_result(finding, codes.index(finding.code)) for finding in report.findings],
        "invocations": [{"executionSuccessful": verdict is not Verdict.INCONCLUSIVE}],
        "columnKind": "unicodeCodePoints",
    }
    log = {"$schema": "https://json.schemastore.org/sarif-2.1.0.json", "version": "2.1.0", "runs": [run]}
    return json.dumps(log, indent=1) + "\n"


def _rule(rule: Rule) -> dict[str, Any]:
    return {
        "id": rule.code,
        "shortDescription": {"text": rule.title},
        "fullDescription": {"text": f"{rule.what} {rule.why}"},
        "help": {"text": rule.fix},
        "defaultConfiguration": {"level": LEVEL[rule.severity]},
    }


def _result(finding: Finding, index: int) -> dict[str, Any]:
    place = finding.location
    names = [*place.segments]
    names += [f"layer{place.layer}"] if place.layer is not None else []
    names += [f"head{place.head}"] if place.head is not None else []
    qualified = "/".join([place.subject or "", *names]).strip("/")
    location: dict[str, Any] = {
        "physicalLocation": {
            "artifactLocation": {"uri": quote((place.source or IN_MEMORY).replace("\\", "/"))},
            "region": {"startLine": place.line or 1},
        }
    }
    if qualified:
        location["logicalLocations"] = [{"fullyQualifiedName": qualified}]
    text = finding.message if finding.cause is None else f"{finding.message}. Likely cause: {finding.cause}"
    return {
        "ruleId": finding.code,
        "ruleIndex": index,
        "level": LEVEL[finding.severity],
        "message": {"text": text},
        "locations": [location],
        "partialFingerprints": {"octopusVerify/v1": finding.fingerprint},
        "occurrenceCount": max(finding.count, 1),
    }
