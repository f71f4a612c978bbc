"""All faults in all stacks and dtypes: which are visible, which are caught, and by what name."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

import torch

from octopus.verify.selftest.bench import Bench
from octopus.verify.selftest.cell import Cell, cell, clean_reports, dump_cell
from octopus.verify.selftest.dumps import clean_dump
from octopus.verify.selftest.fault import Fault

DTYPES = (torch.float64, torch.float32, torch.bfloat16)
INEXACT = ("packed against alone", "additivity")
"""Stages that compare with a tolerance. All others are exact."""
LEEWAY = {"float64": 0, "float32": 2}
"""How many faults may be missed in a dtype."""
EXACT_IN_BFLOAT16 = ("OCT1", "OCT3", "OCT404", "OCT405")
"""Masks, heads and targets: caught without a tolerance, even where rounding is coarse."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Matrix:
    """What became of every fault.

    Attributes:
        faults: In order.
        cells: One for each fault, stack and dtype.
        false_alarms: Findings and doubts about stacks and dumps without a fault, in words.
    """

    faults: tuple[Fault, ...]
    cells: tuple[Cell, ...]
    false_alarms: tuple[str, ...]

    def missed(self, dtype: str) -> list[str]:
        """Names of the faults that were missed somewhere, in a dtype or in a dump."""
        return [
            fault.name
            for fault in self.faults
            if any(
                c.code is None for c in self.cells if c.fault == fault.name and c.dtype in (dtype, "exact")
            )
        ]

    def failures(self) -> list[str]:
        """Why the auditor cannot be trusted, in words; empty if it can."""
        failures = [f"false alarm: {alarm}" for alarm in self.false_alarms]
        for dtype, leeway in LEEWAY.items():
            missed = self.missed(dtype)
            if len(missed) > leeway:
                failures.append(f"{dtype}: missed {', '.join(missed)}; at most {leeway} may be")
        exact = {fault.name for fault in self.faults if fault.code.startswith(EXACT_IN_BFLOAT16)}
        for c in self.cells:
            if c.dtype == "bfloat16" and c.fault in exact and (c.code is None or c.stage in INEXACT):
                failures.append(f"bfloat16: {c.fault} was not caught without a tolerance in {c.stack}")
        return failures


def run_matrix(
    faults: Sequence[Fault], benches: Sequence[Bench], dtypes: Iterable[torch.dtype] = DTYPES
) -> Matrix:
    """Plants every fault wherever it can be planted."""
    dtypes = tuple(dtypes)
    cells: list[Cell] = []
    for fault in faults:
        if fault.dump:
            cells.append(dump_cell(fault, clean_dump()))
        cells += [
            cell(bench, fault, dtype)
            for bench in benches
            if not fault.dump and bench.name in fault.stacks
            for dtype in dtypes
        ]
    alarms = [alarm for bench in benches for dtype in dtypes for alarm in _false_alarms(bench, dtype)]
    return Matrix(faults=tuple(faults), cells=tuple(cells), false_alarms=tuple(alarms))


def _false_alarms(bench: Bench, dtype: torch.dtype) -> Iterator[str]:
    for stage, report in clean_reports(bench, dtype):
        place = f"{bench.name} in {dtype}, {stage}"
        yield from (f"{place}: {finding.code} {finding.message}" for finding in report.findings)
        yield from (
            f"{place}: {check.audit} is inconclusive: {check.reason}"
            for check in report.checks
            if check.outcome.value == "inconclusive"
        )
