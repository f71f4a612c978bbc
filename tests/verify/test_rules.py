"""The list of rules, the audits that can find them, and the code that reports them are one."""

import re
from pathlib import Path

import pytest

from octopus.verify.audits import STATIC
from octopus.verify.rules import GROUPS, Rule, rules

SOURCES = Path(__file__).parents[2] / "octopus" / "verify"
OF_THE_COMMAND = {"OCT901"}


def test_every_rule_is_looked_for_and_every_code_is_a_rule() -> None:
    """Catches: a rule that nothing can find, and a code without a text."""
    texts = [path.read_text() for path in SOURCES.rglob("*.py")]
    named = {code for text in texts for code in re.findall(r"OCT\d{3}", text)}
    named |= {code for audit in STATIC for code in audit.codes}
    assert named == set(rules())
    static = {code for audit in STATIC for code in audit.codes}
    functional = {code for code in rules() if code[3] == "5"} | {"OCT403", "OCT406", "OCT407"}
    assert set(rules()) - static == functional | OF_THE_COMMAND


def test_audits_have_names_of_their_own_and_name_what_they_need() -> None:
    """Catches: two audits of one name, whose checks cannot be told apart."""
    names = [audit.name for audit in STATIC]
    assert len(set(names)) == len(names)


@pytest.mark.parametrize("rule", rules().values(), ids=lambda rule: rule.code)
def test_every_rule_says_what_why_and_what_to_do(rule: Rule) -> None:
    """Catches: a text that was left out or is no sentence."""
    assert rule.group in GROUPS.values()
    assert rule.title[0].islower() and not rule.title.endswith(".")
    for text in (rule.what, rule.why, rule.fix):
        assert text[0].isupper() and text.endswith((".", "?"))
    assert all(re.fullmatch(r"[\w.-]+/[\w.-]+#\d+", report) for report in rule.seen)
