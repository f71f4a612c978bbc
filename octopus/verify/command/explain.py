"""`explain` and `rules`."""

from __future__ import annotations

import argparse
import json
import textwrap

from octopus.core.errors import ConfigError
from octopus.verify.rules import Rule, rules

WIDTH = 100


def explain(options: argparse.Namespace) -> int:
    """Prints what one code means. Raises ConfigError for one that does not exist."""
    code = options.code.upper()
    code = f"OCT{code}" if code.isdigit() else code
    if code not in rules():
        raise ConfigError(f"there is no code {code}; `octopus-verify rules` lists them")
    rule = rules()[code]
    print(f"{rule.code}  {rule.title}  ({rule.severity.word}, {rule.group})")
    for title, text in (("What", rule.what), ("Why", rule.why), ("Fix", rule.fix), ("Seen", ", ".join(rule.seen))):
        if text:
            print(textwrap.fill(f"{title}: {text}", width=WIDTH, subsequent_indent="  ", initial_indent=""))
    return 0


def list_rules(options: argparse.Namespace) -> int:
    """Prints all codes."""
    if options.format == "json":
        table = {"schema_version": 1, "rules": [_plain(rule) for rule in rules().values()]}
        print(json.dumps(table, indent=1))
    elif options.format == "markdown":
        print("| code | severity | what it finds |\n|---|---|---|")
        for rule in rules().values():
            print(f"| {rule.code} | {rule.severity.word} | {rule.title} |")
    else:
        for rule in rules().values():
            print(f"{rule.code}  {rule.severity.word:8}{rule.title}")
    return 0


def _plain(rule: Rule) -> dict[str, object]:
    return {
        "code": rule.code,
        "title": rule.title,
        "group": rule.group,
        "severity": rule.severity.word,
        "what": rule.what,
        "why": rule.why,
        "fix": rule.fix,
        "seen": list(rule.seen),
    }
