"""The rules: what each code means, why it matters, what to do. The texts are data, in one file for each hundred."""

from __future__ import annotations

import tomllib
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from importlib.resources import files
from types import MappingProxyType

from octopus.verify.findings import Finding, Location, Severity, Witness
from octopus.verify.subject import Subject

GROUPS = {
    "0": "input", "1": "masks", "2": "positions and rotary embedding", "3": "heads", "4": "gradients and targets",
    "5": "non-interference", "6": "traces", "7": "pool accounting", "9": "internal",
}  # fmt: skip
"""What the first digit of a code stands for."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Rule:
    """What a code means.

    Attributes:
        code: `OCT101`.
        title: A few words.
        severity: Of its findings, unless one has a reason to differ.
        what: The exact criterion.
        why: What goes wrong if it is not kept.
        fix: What to do.
        seen: Public reports of the fault.
    """

    code: str
    title: str
    severity: Severity
    what: str
    why: str
    fix: str
    seen: tuple[str, ...] = ()

    @property
    def group(self) -> str:
        """What kind of rule it is."""
        return GROUPS[self.code[3]]


@cache
def rules() -> Mapping[str, Rule]:
    """All rules by code, ascending."""
    found = {}
    for digit in GROUPS:
        text = (files("octopus.verify.rules") / f"oct{digit}.toml").read_text(encoding="utf-8")
        for code, entry in tomllib.loads(text).items():
            severity = Severity[entry.pop("severity", "error").upper()]
            seen = tuple(entry.pop("seen", ()))
            found[code] = Rule(code=code, severity=severity, seen=seen, **entry)
    return MappingProxyType(found)


def finding(
    code: str,
    message: str,
    *,
    subject: Subject,
    count: int = 1,
    witness: Witness | None = None,
    cause: str | None = None,
    fix: str | None = None,
    severity: Severity | None = None,
    segments: tuple[str, ...] = (),
    layer: int | None = None,
    head: int | None = None,
    line: int | None = None,
) -> Finding:
    """A finding of a rule about a subject; severity and advice are the rule's unless given."""
    rule = rules()[code]
    place = Location(
        source=subject.source, line=line, subject=subject.name, segments=segments, layer=layer, head=head
    )
    return Finding(
        code=code,
        severity=rule.severity if severity is None else severity,
        message=message,
        count=count,
        witness=witness,
        cause=cause,
        fix=fix or rule.fix,
        location=place,
    )
