"""The auditor on a foreign stack on a device: FlexAttention, compiled, forward and backward, inside a library model.

The self-test's faults of masks, heads, gradients and targets are planted into it, in two dtypes and two head
dimensions. Gates, any of which makes the exit code 1: every fault that moves output or gradient beyond rounding is
named by its family; those of masks and gradients also by the gradient audits alone (OCT4xx); without a fault nothing is
found and nothing left open. The yardsticks are the library's sdpa on the same device and, exact, on the CPU.

    PYTHONPATH=. python benchmarks/verify_device.py --device cuda --log verify_device.md
"""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path

import torch
from figures import Figures
from flex_stack import FlexAttention, FlexBench

from octopus.verify.findings import Outcome, Report
from octopus.verify.functional.audits import gradient_stages
from octopus.verify.functional.trial import Trial
from octopus.verify.selftest.cell import Cell, cell, clean_reports
from octopus.verify.selftest.fault import FOREIGN, Fault
from octopus.verify.selftest.faults import FAULTS
from octopus.verify.selftest.matrix import Matrix
from octopus.verify.selftest.table import table

FAMILIES = ("OCT1", "OCT3", "OCT4")
GRADIENT_CODES = ("OCT1", "OCT304", "OCT401", "OCT402", "OCT403")
"""What the gradient audits must find without any other: they are told neither the mask nor the loss terms."""


def gradient_codes(bench: FlexBench, fault: Fault, dtype: torch.dtype) -> list[str]:
    """What the gradient audits alone say of a fault."""
    with bench.planted(fault, dtype) as planted:
        trial = Trial(stack=planted.stack, subject=bench.episode.subject(bench.name))
        reports = [stage.report() for stage in gradient_stages(trial, bench.loss, bench.yardstick)]
    return sorted({finding.code for report in reports for finding in report.findings})


def alarms(place: str, reports: Iterable[tuple[str, Report]]) -> Iterator[str]:
    """What was found, or left open, where no fault is."""
    for stage, report in reports:
        yield from (f"{place}, {stage}: {finding.code} {finding.message}" for finding in report.findings)
        yield from (
            f"{place}, {stage}: {check.audit} is inconclusive: {check.reason}"
            for check in report.checks
            if check.outcome is Outcome.INCONCLUSIVE
        )


class Audit:
    """All variants, their matrix and what is wrong with it.

    Attributes:
        cells: What became of every fault.
        alone: What the gradient audits alone said, by fault and variant.
        alarms: Found without a fault.
        red: Gates that do not hold, in words.
    """

    def __init__(self) -> None:
        self.cells: list[Cell] = []
        self.alone: dict[tuple[str, str], list[str]] = {}
        self.alarms: list[str] = []
        self.red: list[str] = []

    def run(self, bench: FlexBench, faults: Sequence[Fault], dtype: torch.dtype, figures: Figures) -> None:
        """One variant: without a fault, then with each."""
        name = "dense stand-in" if bench.device == "cpu" else "flex_attention, compiled"
        say = partial(figures.say, variant=name)
        variant = f"{str(dtype).removeprefix('torch.')}/d{bench.head_dim}"
        started = time.perf_counter()
        found = list(alarms(variant, clean_reports(bench, dtype)))
        self.alarms += found
        say(variant, "clean_findings", len(found), "1")
        for fault in faults:
            planted = replace(cell(bench, fault, dtype), stack=f"flex-d{bench.head_dim}")
            codes = self.alone[fault.name, variant] = gradient_codes(bench, fault, dtype)
            self.cells.append(planted)
            if planted.visible and planted.code is None:
                self.red.append(f"{variant}: {fault.name} was missed; found instead: {planted.codes}")
            if planted.visible and fault.code.startswith(GRADIENT_CODES) and not codes:
                self.red.append(f"{variant}: {fault.name} was missed by the gradient audits alone")
        mine = self.cells[-len(faults) :]
        say(variant, "faults_visible", sum(c.visible for c in mine), "1")
        say(variant, "faults_found", sum(c.visible and c.code is not None for c in mine), "1")
        alone = [f for f in faults if f.code.startswith(GRADIENT_CODES)]
        say(variant, "faults_for_gradient_audits_alone", len(alone), "1")
        say(
            variant,
            "found_by_gradient_audits_alone",
            sum(bool(self.alone[f.name, variant]) for f in alone),
            "1",
        )
        say(variant, "time", round(time.perf_counter() - started, 2), "s")

    def markdown(self, faults: Sequence[Fault]) -> Iterator[str]:
        """The matrix, and the second one of the gradient audits alone."""
        matrix = Matrix(faults=tuple(faults), cells=tuple(self.cells), false_alarms=tuple(self.alarms))
        yield from table(matrix, markdown=True)
        variants = list(dict.fromkeys(variant for _, variant in self.alone))
        yield from ("", "By the gradient audits alone:", "")
        yield f"| fault | {' | '.join(variants)} |"
        yield f"| {' | '.join(['---'] * (len(variants) + 1))} |"
        for fault in faults:
            said = [" ".join(self.alone.get((fault.name, variant), ())) or "-" for variant in variants]
            yield f"| {fault.name} | {' | '.join(said)} |"
        yield from (
            "",
            *(f"- false alarm: {alarm}" for alarm in self.alarms),
            *(f"- red: {red}" for red in self.red),
        )


def main() -> int:
    """Runs all variants."""
    parser = argparse.ArgumentParser(description="Plant faults into FlexAttention on a device and find them.")
    parser.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    parser.add_argument(
        "--small", action="store_true", help="one head dimension and float32 only, for a trial"
    )
    parser.add_argument("--log", type=Path, help="where the matrix goes, as Markdown")
    options = parser.parse_args()
    command = f"python benchmarks/verify_device.py --device {options.device}" + " --small" * options.small
    figures = Figures("verify_device", options.device, command)
    faults = [f for f in FAULTS if f.code.startswith(FAMILIES) and FOREIGN in f.stacks and not f.dump]
    audit, attention = Audit(), FlexAttention(options.device)
    for head_dim in (64,) if options.small else (64, 128):
        bench = FlexBench(name=FOREIGN, device=options.device, head_dim=head_dim, attention=attention)
        for dtype in (torch.float32,) if options.small else (torch.bfloat16, torch.float32):
            try:
                audit.run(bench, faults, dtype, figures)
            except (
                RuntimeError
            ) as error:  # Of the compiler or the device: the other variants are still asked.
                audit.red.append(f"{dtype}, head dimension {head_dim}: {type(error).__name__}: {error}")
    kind = "compiled" if options.device == "cuda" else "dense stand-in for"
    title = f"# {kind} FlexAttention on {figures.device}, torch {torch.__version__}"
    lines = [title, "", f"`{command}`", "", *audit.markdown(faults)]
    print("\n".join(lines), file=sys.stderr)
    if options.log:
        options.log.write_text("\n".join(lines) + "\n")
    return 1 if audit.red or audit.alarms else 0


if __name__ == "__main__":
    sys.exit(main())
