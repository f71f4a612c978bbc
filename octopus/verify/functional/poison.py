"""Poison in slots that a row must not see (OCT502 finite, OCT503 NaN and infinity): not a bit of the row may move.

A kernel that multiplies by a mask, or adds a large negative number where it should leave a key out, passes every test
with well-behaved numbers and fails this one. Finite poison is asked of everybody; NaN poison is for kernels that select
(other libraries' dense kernels turn visible rows to NaN by construction). The kernel is called as the model calls it,
with the model's own queries, keys and values.

Letters: H query heads, G key/value heads, T rows, D head dimension.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

import numpy as np
import torch
from torch import Tensor

from octopus.verify.audits.audit import Inconclusive
from octopus.verify.findings import Finding
from octopus.verify.functional.kernel import KernelCall, kernel_calls
from octopus.verify.functional.trial import Trial

Poison = Callable[[Tensor], Tensor]

FINITE: Mapping[str, Poison] = {
    "+1e4": lambda x: torch.full_like(x, 1e4),
    "-1e4": lambda x: torch.full_like(x, -1e4),
    "alternating 1e4": lambda x: (
        1e4 * (1 - 2 * (torch.arange(x.shape[-1], device=x.device) % 2)).expand_as(x).to(x)
    ),
}
NOT_FINITE: Mapping[str, Poison] = {
    "NaN": lambda x: torch.full_like(x, torch.nan),
    "infinity": lambda x: torch.full_like(x, torch.inf),
}


def finite_poison(trial: Trial) -> list[Finding]:
    """OCT502, in every attention layer: keys, values and both of each segment, for those who may not see it."""
    return _poisoned(trial, "OCT502", FINITE)


def not_finite_poison(trial: Trial) -> list[Finding]:
    """OCT503: the same with NaN and infinity."""
    return _poisoned(trial, "OCT503", NOT_FINITE)


@torch.no_grad()
def _poisoned(trial: Trial, code: str, poisons: Mapping[str, Poison]) -> list[Finding]:
    findings: dict[tuple[str, str], Finding] = {}
    controls = 0
    for layer, call in enumerate(kernel_calls(trial.stack)):
        clean_HTD = call(call.q_HTD, call.k_GTD, call.v_GTD)
        for start, stop in trial.segments():
            blind_T = ~trial.visible_TT[:, start:stop].any(axis=1)
            for name, poison in poisons.items():
                for where in (("keys",), ("values",), ("keys", "values")):
                    moved_T = _moved(call, clean_HTD, slice(start, stop), poison, where)
                    controls += bool(moved_T[~blind_T].any())
                    wrong = np.flatnonzero(moved_T & blind_T)
                    if len(wrong):
                        reader, source = trial.name(int(wrong[0])), trial.name(start)
                        place = f"the {' and '.join(where)} of {source}"
                        message = f"{reader} moves when {name} stands in {place}, which it must not see"
                        findings.setdefault(
                            (reader, source),
                            trial.found(
                                code, message, query=int(wrong[0]), key=start, count=len(wrong), layer=layer
                            ),
                        )
    if not controls and not findings:
        raise Inconclusive("vacuous (OCT506): no poison reached any row that may see it")
    return list(findings.values())


def _moved(
    call: KernelCall, clean_HTD: Tensor, rows: slice, poison: Poison, where: Sequence[str]
) -> np.ndarray:
    """Which rows of the kernel's output are other than before."""
    k_GTD, v_GTD = call.k_GTD.clone(), call.v_GTD.clone()
    for name, x_GTD in (("keys", k_GTD), ("values", v_GTD)):
        if name in where:
            x_GTD[:, rows] = poison(x_GTD[:, rows])
    moved_T: np.ndarray = (call(call.q_HTD, k_GTD, v_GTD) != clean_HTD).any(dim=-1).any(dim=0).cpu().numpy()
    return moved_T
