"""Who is trained to predict what, and how far each loss reaches.

Letters: N loss terms, B losses, T tokens.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from octopus.verify.audits.audit import Audit, Inconclusive, NotNeeded
from octopus.verify.audits.rotary import UNIT
from octopus.verify.case import Case, known
from octopus.verify.chains import Chains
from octopus.verify.facets import LossTerms
from octopus.verify.findings import Finding, Witness
from octopus.verify.groups import MOST, by_stretch
from octopus.verify.margins import HEADROOM, RATIO_NOISE, VISIBLE
from octopus.verify.rules import finding

FAINT = 1e-8
"""A gradient below this share of the largest is none: float32 has less than that left after a sum of a few terms."""


def target_map(case: Case) -> Iterator[Finding]:
    """OCT404: each supervised token, predicted from its predecessor, once."""
    loss, lineage, names = known(case.subject.loss), known(case.lineage), case.names
    rows_N, from_N = loss.token_rows_N, loss.predictor_rows_N
    inside_N = (rows_N >= 0) & (rows_N < lineage.length)
    right_N = np.where(inside_N, lineage.predecessors_T[np.where(inside_N, rows_N, 0)], -1)
    wrong_N = (from_N != right_N) | (right_N < 0)
    shifted = wrong_N.any() and bool(np.array_equal(from_N, rows_N - 1))
    cause = "labels were shifted by one row, not by one step of the path" if shifted else None
    told: set[tuple[str, str]] = set()
    for at in np.flatnonzero(wrong_N).tolist():
        row, predictor, right = int(rows_N[at]), int(from_N[at]), int(right_N[at])
        place = (names.of(min(max(row, 0), lineage.length - 1)), names.of(min(max(predictor, 0), lineage.length - 1)))
        if place in told or len(told) == MOST:
            continue
        told.add(place)
        expected = names.say(right) if right >= 0 else "nothing: it begins its path and has to be given"
        said = names.say(row) if inside_N[at] else f"row {row}"
        yield finding(
            "OCT404",
            f"{said} is predicted from row {predictor}, expected {expected}",
            subject=case.subject,
            witness=Witness(row=row, expected=str(right), actual=str(predictor)),
            cause=cause,
            segments=place,
        )
    yield from _counts(case, loss, rows_N[inside_N])


def denominator(case: Case) -> Iterator[Finding]:
    """OCT405: by what the sum of the terms is divided."""
    loss = known(case.subject.loss)
    declared, used = loss.declared_denominator, loss.denominator
    if declared is None and used is None:
        raise NotNeeded("no denominator is given")
    weights = float(len(loss.token_rows_N) if loss.weights_N is None else loss.weights_N.sum())
    right = weights if declared is None else declared
    actual = weights if used is None else used
    # A sum of float32 weights is exact to a unit for each of its terms.
    if abs(actual - right) > UNIT["float32"] * max(len(loss.token_rows_N), 1) * abs(right):
        yield finding(
            "OCT405",
            f"the loss is divided by {actual:g}, expected {right:g}",
            subject=case.subject,
            witness=Witness(expected=f"{right:g}", actual=f"{actual:g}"),
        )


def first_ratio(case: Case) -> Iterator[Finding]:
    """OCT408: trainer against sampler before the first update.

    The measure is the noise that the dump itself carries. Without it, only what is less than HEADROOM times the noise
    of the quietest stack that we know is clean, and only VISIBLE times that of the noisiest one is wrong.
    """
    loss, names = known(case.subject.loss), case.names
    if loss.log_ratio_N is None:
        raise NotNeeded("no log-ratios are given")
    off_N = np.abs(np.expm1(loss.log_ratio_N))
    if loss.log_ratio_noise_N is not None:
        clean = allowed = HEADROOM * float(np.abs(np.expm1(loss.log_ratio_noise_N)).max(initial=0.0))
        if not np.isfinite(allowed):
            raise Inconclusive("log_ratio_noise is not finite: the trainer does not agree with itself")
    else:
        noise = RATIO_NOISE["bfloat16" if loss.dtype in ("bfloat16", "float16") else "float32"]
        clean, allowed = HEADROOM * noise.least, VISIBLE * noise.most
    wrong = np.flatnonzero(~(off_N <= allowed))
    if not len(wrong) and (off_N > clean).any():
        raise Inconclusive(
            f"ratios are up to {off_N.max():.3g} from 1, which may be rounding: give log_ratio_noise, the log-ratios "
            "of the trainer against itself on the same tokens in another batch"
        )
    if len(wrong):
        row = int(loss.token_rows_N[wrong[0]])
        ratio = float(np.exp(loss.log_ratio_N[wrong[0]]))
        everywhere = len(wrong) == len(off_N) > 1
        yield finding(
            "OCT408",
            f"the ratio of {names.say(row)} is {ratio:.6g} before any update",
            subject=case.subject,
            count=len(wrong),
            witness=Witness(row=row, expected=f"1 within {allowed:g}", actual=f"{ratio:.6g}"),
            cause="no ratio is 1: a shift by one token, or another temperature" if everywhere else None,
            segments=(names.of(row),),
        )


def sampled_after_mount(case: Case) -> Iterator[Finding]:
    """OCT409: tokens that were sampled from a row that had not seen what they see."""
    lineage, loss = known(case.lineage), known(case.subject.loss)
    if loss.sampled_T is None:
        raise NotNeeded("which tokens were sampled is not given")
    for run in lineage.runs:
        if run.mounts and loss.sampled_T[run.start]:
            names = case.names
            yield finding(
                "OCT409",
                f"{names.say(run.start)} was sampled right after a mount of {names.say(run.mounts[-1].k1 - 1)}",
                subject=case.subject,
                witness=Witness(row=run.start, expected="a forced token in between", actual="sampled"),
                segments=(names.of(run.start),),
            )


def gradient_reach(case: Case) -> Iterator[Finding]:
    """OCT401 and OCT402: exact zeros where nothing may flow, something where it must."""
    gradients, names = known(case.subject.gradients), case.names
    chains = Chains(known(case.expected))
    reach = chains.influence()
    for index, (norms_T, rows) in enumerate(zip(gradients.norms_BT, gradients.loss_rows, strict=True)):
        reached_T = np.zeros(case.subject.length, dtype=bool)
        for row in rows.tolist():
            for start, stop in chains.influence_of(row, reach).tolist():
                reached_T[start:stop] = True
        leaks = np.flatnonzero(~reached_T & (norms_T != 0))
        faint = np.flatnonzero(reached_T & case.real_T & ~(norms_T > FAINT * norms_T.max()))
        for code, wrong, what, expected in (
            ("OCT401", leaks, "reaches", "exactly 0"),
            ("OCT402", faint, "does not reach", "more than 0"),
        ):
            for stretch, first, count in by_stretch(case, wrong):
                yield finding(
                    code,
                    f"loss {index} {what} {names.say(first)}: its gradient is {norms_T[first]:.3g}",
                    subject=case.subject,
                    count=count,
                    witness=Witness(row=first, expected=expected, actual=f"{norms_T[first]:.3g}"),
                    segments=(f"loss {index}", stretch),
                )


def _counts(case: Case, loss: LossTerms, rows_N: np.ndarray) -> Iterator[Finding]:
    times_T = np.bincount(rows_N, minlength=case.subject.length)
    faults = []
    if not case.subject.declared.loss_weights:
        faults.append((times_T > 1, "has {} loss terms", "one"))
    if loss.supervised_T is not None:
        faults += [
            (loss.supervised_T & (times_T == 0), "has no loss term", "one"),
            (~loss.supervised_T & (times_T > 0), "has {} loss terms and is masked", "none"),
        ]
    for wrong_T, what, expected in faults:
        for stretch, row, count in by_stretch(case, np.flatnonzero(wrong_T)):
            yield finding(
                "OCT404",
                f"{case.names.say(row)} {what.format(times_T[row])}",
                subject=case.subject,
                count=count,
                witness=Witness(row=row, expected=expected, actual=str(times_T[row])),
                segments=(stretch, "terms"),
            )


AUDITS = (
    Audit(name="gradient reach", codes=("OCT401", "OCT402"), needs=("gradients", "lineage"), run=gradient_reach),
    Audit(name="target map", codes=("OCT404",), needs=("loss", "lineage"), run=target_map),
    Audit(name="denominator", codes=("OCT405",), needs=("loss",), run=denominator),
    Audit(name="first ratio", codes=("OCT408",), needs=("loss",), run=first_ratio),
    Audit(name="sampled after mount", codes=("OCT409",), needs=("loss", "lineage"), run=sampled_after_mount),
)
