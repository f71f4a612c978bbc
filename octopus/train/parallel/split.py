"""Packs cut by loss terms. Each part carries all rows that its terms hang on, so gradients add up to the whole's.

What is cut apart are sequences: the last token of one hangs on all its others anyway. A root that has read every branch
hangs on nearly all of its episode, and no cut makes that smaller.

Letters: T rows of the pack, N its loss terms.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass, fields, replace

import numpy as np

from octopus.attention.restrict import influence_rows, restrict
from octopus.core.errors import PlanError
from octopus.train.packing import Pack
from octopus.train.targets import Targets


def split(pack: Pack, *, budget_tokens: int) -> list[Pack]:
    """Parts of at most `budget_tokens` rows that together have the pack's loss terms, each once.

    A part is larger only where a single sequence hangs on more rows. Rows that no loss term hangs on are left out of
    parts; a pack within the budget is returned as it is.
    """
    if pack.plan.length <= budget_tokens:
        return [pack]
    return [part(pack, draft.sequences) for draft in _drafts(_influences(pack), budget_tokens)]


def halves(pack: Pack) -> list[Pack]:
    """Parts of about half the rows, or of as many as the sequence that hangs on most of them needs.

    Raises:
        PlanError: That one hangs on every row.
    """
    influences = _influences(pack)
    most = max((int(np.count_nonzero(reached_T)) for reached_T in influences.values()), default=0)
    if most == pack.plan.length or not influences:
        raise PlanError(
            f"a pack of {pack.plan.length:,} rows cannot be cut: one sequence of sampled tokens hangs on {most:,} of "
            "them; make episodes shorter, or let the root read less of its branches"
        )
    return [part(pack, draft.sequences) for draft in _drafts(influences, max(most, -(-pack.plan.length // 2)))]


def part(pack: Pack, sequences: Collection[int]) -> Pack:
    """The loss terms of some sequences, with all their columns, on the rows that they hang on.

    A label's own row is among these only if another term hangs on it; `token_rows_N` is -1 where it is not.
    """
    chosen_N = np.isin(pack.sequences_N, list(sequences))
    whole = pack.targets
    reached_T = influence_rows(pack.plan, whole.predictor_rows_N[chosen_N])
    places_T = np.where(reached_T, np.cumsum(reached_T) - 1, -1)
    columns = {
        field.name: getattr(pack, field.name)[chosen_N] for field in fields(pack) if field.name.endswith("_N")
    }
    return replace(
        pack,
        plan=restrict(pack.plan, reached_T),
        targets=Targets(
            predictor_rows_N=places_T[whole.predictor_rows_N[chosen_N]],
            labels_N=whole.labels_N[chosen_N],
            token_rows_N=places_T[whole.token_rows_N[chosen_N]],
        ),
        **columns,
    )


@dataclass(slots=True)
class _Draft:
    """Sequences of one part, and the rows that they hang on."""

    sequences: list[int]
    reached_T: np.ndarray


def _influences(pack: Pack) -> dict[int, np.ndarray]:
    """For each sequence the rows that its loss terms hang on, bool [T]."""
    predictors_N = pack.targets.predictor_rows_N
    return {
        int(sequence): influence_rows(pack.plan, predictors_N[pack.sequences_N == sequence])
        for sequence in np.unique(pack.sequences_N)
    }


def _drafts(influences: dict[int, np.ndarray], budget: int) -> Sequence[_Draft]:
    """Best fit: the sequences that hang on most rows first, each to the part to which it adds fewest within budget."""
    drafts: list[_Draft] = []
    by_size = sorted(influences, key=lambda sequence: (-np.count_nonzero(influences[sequence]), sequence))
    for sequence in by_size:
        reached_T = influences[sequence]
        added = [int(np.count_nonzero(reached_T & ~draft.reached_T)) for draft in drafts]
        fits = [
            number
            for number, draft in enumerate(drafts)
            if added[number] == 0 or np.count_nonzero(draft.reached_T) + added[number] <= budget
        ]
        if fits:
            best = drafts[min(fits, key=lambda number: added[number])]
            best.sequences.append(sequence)
            best.reached_T = best.reached_T | reached_T
        else:
            drafts.append(_Draft([sequence], reached_T))
    return drafts
