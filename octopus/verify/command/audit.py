"""Commands that audit: read, run, report."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from octopus.core.errors import ConfigError
from octopus.verify.command import baseline
from octopus.verify.command.formats import FORMATS
from octopus.verify.command.settings import Settings, hints_of, settings_of
from octopus.verify.findings import Report, Verdict
from octopus.verify.inputs import Unreadable
from octopus.verify.subject import Subject

CODES = {
    "mask": ("OCT0", "OCT1"),
    "rope": ("OCT001", "OCT002", "OCT112", "OCT113", "OCT2"),
    "heads": ("OCT001", "OCT002", "OCT3"),
    "grad": ("OCT001", "OCT002", "OCT112", "OCT4"),
    "trace": ("OCT001", "OCT002", "OCT1", "OCT2", "OCT4", "OCT6", "OCT7"),
    "all": ("OCT",),
}
"""Which codes each command looks for."""

EXIT = {Verdict.PASS: 0, Verdict.FINDINGS: 1, Verdict.INCONCLUSIVE: 3}


def run_audit(options: argparse.Namespace) -> int:
    """`mask`, `rope`, `heads`, `grad`, `trace` and `all`. Raises Unreadable and ConfigError."""
    if options.command == "grad" and not options.files:
        return run_functional(options)
    from octopus.verify.audits import STATIC, run
    from octopus.verify.readers import read

    settings = settings_of(options)
    given = read(options.files, hints=hints_of(options, settings))
    if options.command == "trace":
        given = [subject for subject in given if subject.events is not None]
    if options.command == "mask" and all(subject.mask is None and subject.blocks is None for subject in given):
        raise Unreadable("no mask was given; `octopus-verify all` audits what else there is")
    subjects = expanded(given)
    report = run(STATIC, subjects, select=_codes(options.command, settings), ignore=settings.ignore)
    if options.picture is not None:
        from octopus.verify.pictures import draw

        for subject, path in zip(subjects, _pictures(options.picture, len(subjects)), strict=True):
            draw(subject, [f for f in report.findings if f.location.subject == subject.name], path)
    return publish(report, options, settings)


def run_functional(options: argparse.Namespace) -> int:
    """`isolate`, and `grad` without files: on a model that runs."""
    from octopus.verify.functional import command

    settings = settings_of(options)
    report = command.run(options, options.command)
    return publish(_chosen(report, settings), options, settings)


def publish(report: Report, options: argparse.Namespace, settings: Settings) -> int:
    """Applies the baseline, writes the report and returns the exit code."""
    if options.write_baseline is not None:
        baseline.write(options.write_baseline, report)
    if settings.baseline is not None:
        report = baseline.without(report, baseline.read(Path(settings.baseline)))
    verdict = report.verdict(settings.level)
    text = FORMATS[settings.format](report, verdict, options.command, settings.max_findings, options.verbose)
    if options.output is None:
        sys.stdout.write(text)
    else:
        options.output.write_text(text, encoding="utf-8")
    return 0 if options.exit_zero and verdict is Verdict.FINDINGS else EXIT[verdict]


def expanded(subjects: Sequence[Subject]) -> list[Subject]:
    """The subjects, and for each trace the rows that follow from it."""
    found = [*subjects]
    for subject in subjects:
        if subject.events is not None and subject.descent is None:
            from octopus.verify.audits.traces import trace_subject

            rows = trace_subject(subject)
            found += [rows] if rows is not None else []
    return found


def _codes(command: str, settings: Settings) -> tuple[str, ...]:
    """The codes that both the command and the user ask for; the longer prefix of each pair that agrees."""
    if not settings.select:
        return CODES[command]
    both = [
        max(wanted, own, key=len)
        for wanted in settings.select
        for own in CODES[command]
        if wanted.startswith(own) or own.startswith(wanted)
    ]
    if not both:
        raise ConfigError(f"{command} looks for none of {', '.join(settings.select)}; try `all`")
    return tuple(both)


def _chosen(report: Report, settings: Settings) -> Report:
    from octopus.verify.audits.audit import chosen

    kept = tuple(f for f in report.findings if chosen(f.code, settings.select, settings.ignore))
    return replace(report, findings=kept)


def _pictures(path: Path, count: int) -> list[Path]:
    """One file for each subject: `mask.html`, or `mask-0.html`, `mask-1.html`, ..."""
    if count == 1:
        return [path]
    return [path.with_name(f"{path.stem}-{number}{path.suffix}") for number in range(count)]
