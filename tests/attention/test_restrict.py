"""Plans of a part of a row, against the dense matrices of the whole.

Catches: a mount's tokens without what those attended to; a key that is kept though nobody kept sees it; a causal slice
taken for a rectangle; shifts, positions, subtree ends or predecessors that still count the rows that were left out.
"""

from __future__ import annotations

import numpy as np
import pytest
from random_graphs import lowered, random_episode
from shapes import paper_143k

from octopus.attention.exports import dense_view
from octopus.attention.plan import lower
from octopus.attention.restrict import influence_rows, restrict
from octopus.core.errors import InvariantViolation


def closed(visible_TT: np.ndarray, row: int) -> np.ndarray:
    reached_T = visible_TT[row].copy()
    while (more_T := reached_T | visible_TT[reached_T].any(axis=0)).sum() > reached_T.sum():
        reached_T = more_T
    return reached_T


@pytest.mark.parametrize("seed", range(12))
def test_influence_is_the_closure_of_visibility(seed: int) -> None:
    plan, _ = lowered(random_episode(seed, size=40))
    visible_TT, _ = dense_view(plan)
    rng = np.random.default_rng(seed)
    for row in rng.choice(plan.length, size=min(8, plan.length), replace=False):
        assert influence_rows(plan, np.array([row])).tolist() == closed(visible_TT, row).tolist()


@pytest.mark.parametrize("seed", range(12))
def test_kept_rows_see_each_other_as_before(seed: int) -> None:
    plan, _ = lowered(random_episode(seed, size=40))
    rows = np.random.default_rng(seed).choice(plan.length, size=2)
    kept_T = influence_rows(plan, rows)
    part, kept = restrict(plan, kept_T), np.flatnonzero(kept_T)
    for ours, whole in zip(dense_view(part), dense_view(plan), strict=True):
        assert (ours == whole[np.ix_(kept, kept)]).all()
    assert part.pairs == dense_view(plan)[0][kept].sum()
    assert part.tokens_T.tolist() == plan.tokens_T[kept].tolist()
    rows_of = {row: place for place, row in enumerate(kept.tolist())} | {-1: -1}
    assert part.predecessors_T.tolist() == [rows_of[row] for row in plan.predecessors_T[kept].tolist()]
    path_TT = (np.arange(part.length) >= np.arange(part.length)[:, None]) & (
        np.arange(part.length) < part.subtree_ends_T[:, None]
    )
    assert (path_TT.T & ~dense_view(part)[0]).sum() == 0  # What a row sees through its path is visible to it.


def test_one_branch_of_the_paper_episode_hangs_on_what_it_read() -> None:
    """A branch's second half needs the root, its own first half, and the first halves that it mounts, whole."""
    plan = lower(paper_143k(scale=64))
    last = int(np.flatnonzero(plan.positions_T == plan.positions_T.max())[0])
    assert influence_rows(plan, np.array([last])).all()  # The join reads every branch.
    branch_end = 32_768 // 64 + 8_192 // 64 - 1
    assert np.count_nonzero(influence_rows(plan, np.array([branch_end]))) < plan.length


def test_rows_that_are_not_closed_are_refused() -> None:
    plan = lower(paper_143k(scale=512))
    kept_T = np.zeros(plan.length, dtype=bool)
    kept_T[-1] = True
    with pytest.raises(InvariantViolation, match="predecessors"):
        restrict(plan, kept_T)


def test_no_rows_are_a_plan() -> None:
    plan = lower([])
    assert influence_rows(plan, np.array([], dtype=np.int64)).tolist() == []
    assert restrict(plan, np.zeros(0, dtype=bool)).length == 0
