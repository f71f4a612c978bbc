"""Non-interference: what no row may see is changed, and no bit of that row may move (OCT501, 505, 506, 509).

The layout stays, so every sum keeps its order and the tolerance is zero in every dtype. Each audit has a positive
control: some row that may see the change must move, or the audit looked at nothing and says so.
"""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np
import torch
from torch import Tensor

from octopus.verify.audits.audit import Inconclusive
from octopus.verify.findings import Finding
from octopus.verify.functional.stack import record
from octopus.verify.functional.trial import Trial, difference

RUNS = 10


def segment_swap(trial: Trial) -> list[Finding]:
    """OCT501: half a segment's tokens are exchanged for others at once, for both halves of every segment.

    The first half comes alone because the second, which sees it, is the control where nobody else does.
    """
    halves = [(run, (run[0] + run[1] + 1) // 2) for run in trial.segments()]
    ranges = [
        part
        for (start, stop), middle in halves
        for part in ((start, middle), (middle, stop))
        if part[0] < part[1]
    ]
    return _changes(trial, "OCT501", ranges, "half the tokens change")


def causality(trial: Trial) -> list[Finding]:
    """OCT505: one token is exchanged for another, for every token."""
    rows = ((row, row + 1) for row in range(trial.subject.length))
    return _changes(trial, "OCT505", rows, "one token changes")


@torch.no_grad()
def determinism(trial: Trial) -> list[Finding]:
    """OCT509: the same row, ten times over."""
    everywhere_T, first = np.ones(trial.subject.length, dtype=bool), record(trial.stack)
    for _ in range(RUNS - 1):
        moved = difference(first, record(trial.stack), everywhere_T)
        if moved is not None:
            message = f"two runs of the same row differ, first at {moved.place}"
            return [
                trial.found(
                    "OCT509", message, query=moved.row, key=moved.row, count=moved.rows, layer=moved.layer
                )
            ]
    return []


@torch.no_grad()
def _changes(trial: Trial, code: str, ranges: Iterable[tuple[int, int]], change: str) -> list[Finding]:
    findings: dict[tuple[str, str], Finding] = {}  # one for each pair of segments
    controls = 0
    for start, stop in ranges:
        changed = record(trial.stack, _other_tokens(trial, start, stop))
        may_move_T, viewers_T = (
            np.asarray(table_TT[:, start:stop].any(axis=1))
            for table_TT in (trial.influence_TT, trial.visible_TT)
        )
        viewers_T[start:stop] = False
        moved = difference(trial.baseline, changed, ~may_move_T)
        if moved is not None:
            reader, source = trial.name(moved.row), trial.name(start)
            message = (
                f"{reader} moves at {moved.place} when {change} in {source}, which must not influence it"
            )
            findings.setdefault(
                (reader, source),
                trial.found(code, message, query=moved.row, key=start, count=moved.rows, layer=moved.layer),
            )
        controls += difference(trial.baseline, changed, viewers_T) is not None
    if not controls and not findings:
        raise Inconclusive("vacuous (OCT506): no change reached any row that may see it")
    return list(findings.values())


def _other_tokens(trial: Trial, start: int, stop: int) -> Tensor:
    """The row's tokens with `[start, stop)` exchanged, each for one half a table away."""
    tokens_T, table = trial.stack.tokens_T.clone(), trial.stack.embedding
    size = trial.baseline.logits_TV.shape[-1] if table is None else table.num_embeddings
    tokens_T[start:stop] = (tokens_T[start:stop] + max(size // 2, 1)) % size
    return tokens_T
