"""How a report is written: one small module a format."""

from __future__ import annotations

from collections.abc import Callable

from octopus.verify.command.formats import github, json_report, junit, markdown, sarif, text
from octopus.verify.findings import Report, Verdict

Format = Callable[[Report, Verdict, str, int, bool], str]
"""From the report, its verdict, the command, the number of findings to print, and whether to list all checks."""

FORMATS: dict[str, Format] = {
    "text": text.render,
    "json": json_report.render,
    "sarif": sarif.render,
    "github": github.render,
    "junit": junit.render,
    "markdown": markdown.render,
}
