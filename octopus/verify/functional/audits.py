"""All functional audits, cheapest first, each as a report."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import partial
from typing import NamedTuple

import numpy as np

from octopus.verify.audits import STATIC
from octopus.verify.audits.audit import Audit, Inconclusive, run
from octopus.verify.case import Case
from octopus.verify.findings import Check, Finding, Outcome, Report
from octopus.verify.functional.differences import (
    RowLoss,
    additivity,
    layout_change,
    packed_against_alone,
    sibling_order,
)
from octopus.verify.functional.isolation import causality, determinism, segment_swap
from octopus.verify.functional.observe import counted_twice, gradient_subject, kernel_subjects
from octopus.verify.functional.paged import PagedStack, paged_findings
from octopus.verify.functional.poison import finite_poison, not_finite_poison
from octopus.verify.functional.positions import kernel_positions, key_cache_subjects
from octopus.verify.functional.trial import Trial
from octopus.verify.probe import Probed
from octopus.verify.subject import Subject
from octopus.verify.tolerance import Yardstick


class Stage(NamedTuple):
    """One thing that is asked of a stack."""

    name: str
    report: Callable[[], Report]


def isolation_stages(trial: Trial, *, not_finite: bool = False) -> Iterator[Stage]:
    """Everything that needs the model and the descent only.

    Args:
        trial: What to audit.
        not_finite: Whether NaN and infinity are tried too: for kernels that promise to select, not multiply.
    """
    yield Stage("kernel mask and heads", partial(_kernels, trial))
    if trial.stack.rotaries:
        yield Stage("kernel positions", partial(_positions, trial))
    yield Stage("segment swap", partial(_one, trial, "OCT501", segment_swap))
    yield Stage("causality", partial(_one, trial, "OCT505", causality))
    yield Stage("determinism", partial(_one, trial, "OCT509", determinism))
    yield Stage("finite poison", partial(_one, trial, "OCT502", finite_poison))
    if not_finite:
        yield Stage("not finite poison", partial(_one, trial, "OCT503", not_finite_poison))


def gradient_stages(trial: Trial, loss: RowLoss, yardstick: Yardstick) -> Iterator[Stage]:
    """Everything about gradients.

    Args:
        trial: What to audit.
        loss: Who is trained to predict what.
        yardstick: A trusted computation of the same.
    """
    yield Stage("gradient isolation", partial(_judged, trial, "gradients", lambda: [gradient_subject(trial)]))
    alone = partial(packed_against_alone, loss=loss, yardstick=yardstick)
    yield Stage("packed against alone", partial(_one, trial, "OCT403", alone))
    halves = partial(additivity, loss=loss, yardstick=yardstick)
    yield Stage("additivity", partial(_one, trial, "OCT407", halves))


def layout_stage(
    trial: Trial, other: Trial, rows_T: np.ndarray, loss: RowLoss, yardstick: Yardstick
) -> Stage:
    """Two layouts of the same paths, see `layout_change` and `sibling_order`."""

    def both() -> Report:
        outputs = _asked(trial, "OCT508", lambda: layout_change(trial, other, rows_T, yardstick))
        return outputs + _asked(trial, "OCT406", lambda: sibling_order(trial, other, rows_T, loss, yardstick))

    return Stage("layout", both)


def paged_stage(stack: PagedStack, trial: Trial) -> Stage:
    """Everything about a paged decoder; the trial gives it a name."""
    return Stage(
        "paged memory", lambda: _asked(trial, "OCT504", lambda: paged_findings(stack, trial.subject))
    )


def _one(trial: Trial, code: str, audit: Callable[[Trial], Iterable[Finding]]) -> Report:
    return _asked(trial, code, lambda: audit(trial))


def _kernels(trial: Trial) -> Report:
    seen: list[tuple[Subject, Probed]] = []

    def observed() -> list[Subject]:
        seen.extend(kernel_subjects(trial))
        return [subject for subject, _ in seen]

    report = _judged(trial, "kernels", observed)
    twice = [finding for subject, probed in seen for finding in counted_twice(subject, probed)]
    return report + _asked(trial, "OCT115", lambda: twice)


def _positions(trial: Trial) -> Report:
    if trial.stack.rotates_inside:
        return _asked(trial, "OCT204", lambda: kernel_positions(trial))
    return _judged(trial, "key caches", lambda: key_cache_subjects(trial))


def _asked(trial: Trial, code: str, findings: Callable[[], Iterable[Finding]]) -> Report:
    """A report of a function that is called here and now; it may say that it cannot tell."""

    def ask(case: Case) -> Iterable[Finding]:
        return findings()

    return run([Audit(name=f"functional {code}", codes=(code,), needs=(), run=ask)], [trial.subject])


def _judged(trial: Trial, name: str, observed: Callable[[], Sequence[Subject]]) -> Report:
    """What the audits of dumps say of what was observed."""
    try:
        return run(STATIC, observed())
    except Inconclusive as why:
        check = Check(audit=name, subject=trial.subject.name, outcome=Outcome.INCONCLUSIVE, reason=str(why))
        return Report(checks=(check,))
