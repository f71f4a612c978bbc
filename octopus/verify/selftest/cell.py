"""One fault in one stack and dtype: is it visible, and is it caught?

Letters: S slices.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import partial

import numpy as np
import torch

from octopus.attention.exports import dense_view
from octopus.attention.plan import Plan
from octopus.verify.audits import STATIC
from octopus.verify.audits.audit import run
from octopus.verify.facets import LossTerms
from octopus.verify.findings import Report, Severity
from octopus.verify.functional.audits import Stage, gradient_stages, isolation_stages, layout_stage
from octopus.verify.functional.differences import RowLoss
from octopus.verify.functional.trial import Trial
from octopus.verify.margins import VISIBLE
from octopus.verify.selftest.bench import Bench, Planted
from octopus.verify.selftest.fault import FOREIGN, Fault
from octopus.verify.subject import CAUSAL, FULL, DenseMask, Positions, Ranges, Subject
from octopus.verify.tolerance import distance


@dataclass(frozen=True, kw_only=True, slots=True)
class Cell:
    """What became of a fault.

    Attributes:
        fault: Its name.
        stack: Where it was planted; `dump` if no model was run.
        dtype: In which dtype; `exact` if no model was run.
        times_noise: How many times the clean noise of the dtype it moves output or gradient; None for a dump.
        code: What it was called when it was caught, None if it was missed.
        stage: The audit that caught it, or all that looked.
        codes: Everything that was found on the way.
    """

    fault: str
    stack: str
    dtype: str
    times_noise: float | None
    code: str | None
    stage: str
    codes: tuple[str, ...]

    @property
    def visible(self) -> bool:
        """Whether it moves the output or a gradient far beyond rounding."""
        return self.times_noise is None or self.times_noise > VISIBLE


def cell(bench: Bench, fault: Fault, dtype: torch.dtype) -> Cell:
    """Plants a fault and asks one stage after another, until one names its family."""
    with bench.planted(fault, dtype) as planted:
        moved = distance(planted.measured(), bench.clean(dtype)).over(bench.yardstick.noise(dtype))
        code, stage, codes = _first(fault.family, stages(bench, planted))
    return Cell(
        fault=fault.name,
        stack=bench.name,
        dtype=str(dtype).removeprefix("torch."),
        times_noise=moved,
        code=code,
        stage=stage,
        codes=codes,
    )


def dump_cell(fault: Fault, clean: Subject) -> Cell:
    """A fault of a dump alone: found in the changed dump, not in the one it was made from."""
    assert fault.dump is not None
    asked = iter([Stage("dump", partial(run, STATIC, [fault.dump(clean)]))])
    code, stage, codes = _first(fault.family, asked)
    return Cell(
        fault=fault.name, stack="dump", dtype="exact", times_noise=None, code=code, stage=stage, codes=codes
    )


def clean_reports(bench: Bench, dtype: torch.dtype) -> Iterator[tuple[str, Report]]:
    """What every stage says of a stack without a fault."""
    with bench.planted(None, dtype) as planted:
        for stage in (*stages(bench, planted), layout_stage(*bench.relaid(dtype), bench.yardstick)):
            yield stage.name, stage.report()


def stages(bench: Bench, planted: Planted) -> Iterator[Stage]:
    """The dump first, then the functional audits, cheapest first."""
    truth = bench.episode.subject(bench.name)
    trial = Trial(stack=planted.stack, subject=truth)
    dump = dumped(truth, planted.declared, planted.loss, bench.loss, dense=bench.name == FOREIGN)
    yield Stage("dump", partial(run, STATIC, [dump]))
    yield from isolation_stages(trial, not_finite=bench.name != FOREIGN)
    yield from gradient_stages(trial, planted.loss, bench.yardstick)


def dumped(truth: Subject, declared: Plan, loss: RowLoss, right: RowLoss, *, dense: bool) -> Subject:
    """What a stack would write to a file: its mask, its positions and its loss terms, with the true descent."""
    if dense:
        mask: DenseMask | Ranges = DenseMask(
            seen_HQK=dense_view(declared)[0][None], convention="bool, True = visible"
        )
    else:
        rows = [(s.q0, s.q1, s.k0, s.k1, CAUSAL if s.causal else FULL) for s in declared.slices]
        mask = Ranges(
            slices_S5=np.array(rows, dtype=np.int64).reshape(-1, 5),
            shifts_S=np.array([s.shift for s in declared.slices], dtype=np.int64),
        )
    supervised_T = np.zeros(truth.length, dtype=bool)
    supervised_T[right.token_rows_N] = True
    terms = LossTerms(
        token_rows_N=loss.token_rows_N,
        predictor_rows_N=loss.predictors_N,
        weights_N=loss.weights_N,
        supervised_T=supervised_T,
        denominator=loss.denominator,
        declared_denominator=right.denominator,
    )
    return replace(
        truth, mask=mask, positions=Positions(ids_AT=declared.positions_T[None], dtype="int64"), loss=terms
    )


def _first(family: str, asked: Iterator[Stage]) -> tuple[str | None, str, tuple[str, ...]]:
    """The first finding of a family, its stage, and all codes that came before."""
    names, codes = [], []
    for stage in asked:
        names.append(stage.name)
        found = [f.code for f in stage.report().findings if f.severity >= Severity.WARNING]
        codes += found
        for code in found:
            if code.startswith(family):
                return code, stage.name, tuple(codes)
    return None, ", ".join(names), tuple(codes)
