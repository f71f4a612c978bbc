"""The examples in the documentation are run, and the links between its pages lead somewhere.

Catches: documentation that shows what the code no longer does.
"""

import doctest
import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
PAGES = [ROOT / "README.md", ROOT / "SECURITY.md", *sorted((ROOT / "docs").glob("*.md"))]


def test_the_examples_of_the_model_page_are_true() -> None:
    text = (ROOT / "docs" / "model.md").read_text()
    parser = doctest.DocTestParser()
    test = parser.get_doctest(re.sub(r"^```.*$", "", text, flags=re.MULTILINE), {}, "model.md", "model.md", 0)
    assert len(test.examples) > 30
    result = doctest.DocTestRunner().run(test)
    assert result.failed == 0


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_links_lead_somewhere(page: Path) -> None:
    text = page.read_text()
    anchors = {re.sub(r"[^a-z0-9 -]", "", line.lstrip("# ").lower()).replace(" ", "-") for line in text.splitlines()}
    for target in re.findall(r"\]\(([^)\s]+)\)", text):
        if target.startswith("#"):
            assert target[1:] in anchors, target
        elif "://" not in target:
            assert (page.parent / target.split("#")[0]).exists(), target


def test_every_claim_of_the_security_page_names_a_test_that_exists() -> None:
    text = (ROOT / "SECURITY.md").read_text()
    claims = [line for line in text.splitlines() if line.startswith("| ") and "tests/" in line]
    named = re.findall(r"`(tests/[\w/]+\.py)`", text)
    assert len(claims) > 12 and all("`tests/" in claim.rpartition(" | ")[2] for claim in claims)
    assert [name for name in named if not (ROOT / name).exists()] == []
