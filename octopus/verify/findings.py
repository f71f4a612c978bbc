"""What an audit says: findings, what was checked, and the verdict that follows."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass, field, replace
from enum import Enum, IntEnum


class Severity(IntEnum):
    """How bad a finding is; ordered."""

    INFO = 1
    WARNING = 2
    ERROR = 3

    @property
    def word(self) -> str:
        """As it is printed."""
        return self.name.lower()


class Verdict(Enum):
    """Of a whole report. INCONCLUSIVE is never a pass: nothing was checked, or a check could not tell."""

    PASS = "pass"  # noqa: S105  no password
    FINDINGS = "findings"
    INCONCLUSIVE = "inconclusive"


class Outcome(Enum):
    """Of one audit on one subject."""

    CLEAN = "clean"
    FOUND = "found"
    INCONCLUSIVE = "inconclusive"
    SKIPPED = "skipped"


@dataclass(frozen=True, kw_only=True, slots=True)
class Witness:
    """The smallest example of what is wrong. Rows count tokens of the subject from 0.

    Attributes:
        query: Row that sees (or should see) `key`.
        key: Row that is seen.
        row: A row that is wrong by itself (a position, a target).
        expected: What ought to be there, as text.
        actual: What is there, as text.
    """

    query: int | None = None
    key: int | None = None
    row: int | None = None
    expected: str | None = None
    actual: str | None = None


@dataclass(frozen=True, kw_only=True, slots=True)
class Location:
    """Where a finding is. Fingerprints are made of this and the code, so nothing here may be an absolute row.

    Attributes:
        source: File as it was given, None for something in memory.
        line: Line of the file, 1 for a binary one.
        subject: Name of the subject, for example `batch0`.
        segments: Names of the segments concerned: who sees, then who is seen.
        layer: First layer concerned.
        head: First head concerned.
    """

    source: str | None = None
    line: int | None = None
    subject: str | None = None
    segments: tuple[str, ...] = ()
    layer: int | None = None
    head: int | None = None


@dataclass(frozen=True, kw_only=True, slots=True)
class Finding:
    """One thing that is wrong, once for each rule and pair of segments.

    Attributes:
        code: Of the rule, for example `OCT101`.
        severity: Of this finding; the rule's own unless there is a reason.
        message: One sentence, without the code.
        count: How many pairs, rows or events are wrong in this way.
        witness: The smallest example.
        cause: What it looks like, if that can be told.
        fix: What to do; None for the rule's general advice.
        location: Where.
    """

    code: str
    severity: Severity
    message: str
    count: int = 1
    witness: Witness | None = None
    cause: str | None = None
    fix: str | None = None
    location: Location = field(default_factory=Location)

    @property
    def fingerprint(self) -> str:
        """Stable name of the finding for baselines: the code and the place, no row numbers, no counts."""
        place = self.location
        parts = (self.code, place.source, place.subject, *place.segments, place.layer, place.head)
        return hashlib.sha256("\x1f".join(map(str, parts)).encode()).hexdigest()[:16]


ABOUT_INPUT = ("OCT0", "OCT112")
"""Codes that say whether the input can be used. That it can is no result."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Check:
    """That an audit looked at a subject, and what came of it.

    Attributes:
        reason: Why it was skipped or inconclusive.
        codes: What it looked for.
    """

    audit: str
    subject: str
    outcome: Outcome
    reason: str = ""
    codes: tuple[str, ...] = ()

    @property
    def about_input(self) -> bool:
        """Whether it looked only at what the others need."""
        return bool(self.codes) and all(code.startswith(ABOUT_INPUT) for code in self.codes)


@dataclass(frozen=True, kw_only=True, slots=True)
class Report:
    """All that one run has found and has looked at.

    Attributes:
        findings: In the order of the audits.
        checks: One for each audit and subject.
        notes: What a reader assumed (the convention of a mask, what was derived from what).
        suppressed: Number of findings that a baseline or `ignore` took out.
    """

    findings: tuple[Finding, ...] = ()
    checks: tuple[Check, ...] = ()
    notes: tuple[str, ...] = ()
    suppressed: int = 0

    def verdict(self, fail_level: Severity = Severity.ERROR) -> Verdict:
        """FINDINGS with one at or above `fail_level`; else PASS only if something was checked and all could tell."""
        if any(finding.severity >= fail_level for finding in self.findings):
            return Verdict.FINDINGS
        outcomes = {check.outcome for check in self.checks if not check.about_input}
        if Outcome.INCONCLUSIVE in outcomes or not outcomes & {Outcome.CLEAN, Outcome.FOUND}:
            return Verdict.INCONCLUSIVE
        return Verdict.PASS

    def __add__(self, other: Report) -> Report:
        return replace(
            self,
            findings=self.findings + other.findings,
            checks=self.checks + other.checks,
            notes=self.notes + tuple(note for note in other.notes if note not in self.notes),
            suppressed=self.suppressed + other.suppressed,
        )
