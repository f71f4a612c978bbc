"""Every format, on one report that has everything that is hard to write."""

import json
from importlib.resources import files
from pathlib import Path
from xml.etree import ElementTree

import jsonschema
import pytest

from octopus.verify.command.formats import FORMATS
from octopus.verify.findings import Check, Finding, Location, Outcome, Report, Severity, Verdict, Witness

SCHEMAS = Path(__file__).parent / "schemas"

LEAK = Finding(
    code="OCT101",
    severity=Severity.ERROR,
    message="row 6 (a|b, token 0) sees <row> 4 & 50% of,\n::error::it \x00",
    count=8,
    witness=Witness(query=6, key=4, expected="hidden", actual="visible"),
    cause="one | triangle",
    fix="mend it",
    location=Location(source="dumps/a b.npz", subject="batch0", segments=("a|b", "root"), layer=3, head=5),
)
IN_BATCH = Location(subject="batch0")
PAD = Finding(code="OCT104", severity=Severity.WARNING, message="row 9 sees nothing", location=IN_BATCH)
TOLD = Finding(code="OCT502", severity=Severity.INFO, message="by nobody's check")
REPORT = Report(
    findings=(LEAK, PAD, TOLD),
    checks=(
        Check(audit="leaks", subject="batch0", outcome=Outcome.FOUND, codes=("OCT101", "OCT103")),
        Check(audit="blind rows", subject="batch0", outcome=Outcome.FOUND, codes=("OCT104",)),
        Check(audit="holes", subject="batch0", outcome=Outcome.CLEAN, codes=("OCT102",)),
        Check(audit="pool", subject="batch0", outcome=Outcome.SKIPPED, reason="needs <pool>"),
        Check(audit="order", subject="batch0", outcome=Outcome.INCONCLUSIVE, reason="too large"),
    ),
    notes=("mask: bool",),
    suppressed=2,
)


def render(name: str, report: Report = REPORT, *, most: int = 20) -> str:
    return FORMATS[name](report, report.verdict(), "mask", most, False)


@pytest.mark.parametrize("report", [REPORT, Report()])
def test_json_and_sarif_are_valid(report: Report) -> None:
    """Catches: a field that is not in the schema, or a value of another type than it says."""
    shipped = json.loads((files("octopus.verify.command.formats") / "report.schema.json").read_text())
    for schema in (shipped, json.loads((SCHEMAS / "sarif-2.1.0-subset.json").read_text())):
        jsonschema.Draft202012Validator.check_schema(schema)
    jsonschema.validate(json.loads(render("json", report)), shipped)
    sarif = json.loads(render("sarif", report))
    jsonschema.validate(sarif, json.loads((SCHEMAS / "sarif-2.1.0-subset.json").read_text()))
    for result in sarif["runs"][0]["results"]:
        assert sarif["runs"][0]["tool"]["driver"]["rules"][result["ruleIndex"]]["id"] == result["ruleId"]


def test_sarif_says_where_and_keeps_its_fingerprints() -> None:
    """Catches: paths that are no URIs, and fingerprints that follow row numbers or counts."""
    (leak, *_) = json.loads(render("sarif"))["runs"][0]["results"]
    place = leak["locations"][0]
    assert place["physicalLocation"]["artifactLocation"]["uri"] == "dumps/a%20b.npz"
    assert place["logicalLocations"][0]["fullyQualifiedName"] == "batch0/a|b/root/layer3/head5"
    assert leak["level"] == "error" and leak["occurrenceCount"] == 8
    assert leak["partialFingerprints"] == {"octopusVerify/v1": LEAK.fingerprint}


def test_fingerprints_hang_on_place_and_code_only() -> None:
    """Catches: a baseline that a longer prompt makes worthless, and one that hides another segment's leak."""

    def named(code: str = "OCT101", segments: tuple[str, ...] = ("a", "b"), query: int = 6, head: int = 1) -> str:
        place = Location(segments=segments, head=head)
        witness = Witness(query=query)
        level = Severity.ERROR
        return Finding(code=code, severity=level, message="x", witness=witness, location=place).fingerprint

    assert named() == named(query=7)
    assert len({named(), named("OCT102"), named(segments=("b", "a")), named(segments=("ab",)), named(head=2)}) == 5


def test_junit_is_xml_and_loses_nothing() -> None:
    """Catches: characters that XML does not allow, and findings whose check is not known."""
    root = ElementTree.fromstring(render("junit"))
    suite = root[0]
    assert [suite.get(name) for name in ("tests", "failures", "errors", "skipped")] == ["6", "3", "1", "1"]
    assert [failure.get("type") for failure in root.iter("failure")] == ["OCT101", "OCT104", "OCT502"]


def test_github_commands_cannot_be_forged_by_a_message() -> None:
    """Catches: a line break in a message that begins a command of its own."""
    lines = render("github").splitlines()
    assert [line.split(" ")[0] for line in lines if line.startswith("::")] == ["::error", "::warning", "::notice"]
    assert "file=dumps/a b.npz,line=1,title=OCT101::" in lines[0] and "50%25 of,%0A::error::it" in lines[0]


def test_markdown_cells_stay_cells() -> None:
    """Catches: a bar in a name that adds a column, and raw HTML."""
    rows = [line for line in render("markdown").splitlines() if line.startswith("| OCT")]
    assert [row.replace("\\|", "").count("|") for row in rows] == [7, 7, 7]
    assert "<row>" not in render("markdown")


def test_text_is_short_but_says_how_much_is_missing() -> None:
    """Catches: a cut list that looks like all, and a check that could not tell and is not named."""
    text = render("text", most=1)
    for words in ("query 6, key 4, expected hidden", "likely cause: one | triangle", "fix: mend it", "times: 8"):
        assert words in text
    assert "... and 2 more" in text and "OCT104" not in text
    assert "inconclusive: order on batch0 (too large)" in text
    levels, checks = "1 error, 1 info, 1 warning, 2 known", "3 checks ran, 1 had nothing to check"
    assert text.splitlines()[-1] == f"findings: {levels}; {checks}"


@pytest.mark.parametrize(
    ("findings", "outcomes", "level", "verdict"),
    [
        ((LEAK,), (Outcome.FOUND,), Severity.ERROR, Verdict.FINDINGS),
        ((PAD,), (Outcome.FOUND,), Severity.ERROR, Verdict.PASS),
        ((PAD,), (Outcome.FOUND,), Severity.WARNING, Verdict.FINDINGS),
        ((), (Outcome.CLEAN, Outcome.SKIPPED), Severity.ERROR, Verdict.PASS),
        ((), (Outcome.CLEAN, Outcome.INCONCLUSIVE), Severity.ERROR, Verdict.INCONCLUSIVE),
        ((), (Outcome.SKIPPED,), Severity.ERROR, Verdict.INCONCLUSIVE),
        ((), (), Severity.ERROR, Verdict.INCONCLUSIVE),
        ((LEAK,), (Outcome.FOUND, Outcome.INCONCLUSIVE), Severity.ERROR, Verdict.FINDINGS),
    ],
)
def test_verdicts(
    findings: tuple[Finding, ...], outcomes: tuple[Outcome, ...], level: Severity, verdict: Verdict
) -> None:
    """Catches: a pass where nothing was checked or a check could not tell."""
    checks = tuple(Check(audit="x", subject="s", outcome=outcome) for outcome in outcomes)
    assert Report(findings=findings, checks=checks).verdict(level) is verdict
