"""The algebra of pairs on one line, against bool matrices."""

import numpy as np
import pytest

from octopus.verify.pairs import MAX_RUNS, Pairs, TooManyRuns, of_dense, of_runs, of_slices
from octopus.verify.subject import BICAUSAL, CAUSAL, FULL, INVERSE


def to_matrix(pairs: Pairs) -> np.ndarray:
    seen = np.zeros((pairs.length, pairs.length), dtype=bool)
    for q, k0, k1 in zip(*pairs.runs(), strict=True):
        assert not seen[q, k0:k1].any()
        seen[q, k0:k1] = True
    return seen


@pytest.mark.parametrize("seed", range(30))
def test_set_operations_are_those_of_matrices(seed: int) -> None:
    """Catches: an edge that is lost or doubled where runs of two sets touch, begin or end together."""
    rng = np.random.default_rng(seed)
    length = int(rng.integers(1, 12))
    one, other = rng.random((2, length, length)) < rng.random()
    a, b = of_dense(one), of_dense(other)
    assert (to_matrix(a) == one).all()
    for pairs, truth in ((a | b, one | other), (a & b, one & other), (a - b, one & ~other)):
        assert (to_matrix(pairs) == truth).all()
        assert pairs.count == truth.sum() and bool(pairs) == truth.any()
        assert (pairs.edges == of_dense(truth).edges).all(), "one set, one list of edges"
    rows, hidden = rng.random((2, length)) < 0.5
    assert (to_matrix(a.of_rows(rows)) == one & rows[:, None]).all()
    assert (to_matrix(a.without_keys(hidden)) == one & ~hidden).all()
    assert (a.holds(*np.indices(one.shape)) == one).all()
    assert set(a.blind_rows().tolist()) == set(np.flatnonzero(~one.any(axis=1)).tolist())


def test_full_rows_do_not_run_into_each_other() -> None:
    """Catches: a line without the spare point, on which a full row and the next one's start become one run."""
    pairs = of_dense(np.ones((3, 3), dtype=bool))
    assert [part.tolist() for part in pairs.runs()] == [[0, 1, 2], [0, 0, 0], [3, 3, 3]]


@pytest.mark.parametrize(
    ("kind", "rows"),
    [
        (FULL, [[2, 5], [2, 5]]),
        (CAUSAL, [[2, 4], [2, 5]]),
        (INVERSE, [[2, 5], [3, 5]]),
        (BICAUSAL, [[2, 4], [3, 5]]),
    ],
)
def test_kinds_of_slices_are_aligned_as_documented(kind: int, rows: list[list[int]]) -> None:
    """Catches: causal slices aligned at the top left."""
    pairs = of_slices(6, np.array([[1, 3, 2, 5, kind]]))
    assert [pairs.row(q).tolist() for q in (1, 2)] == [[row] for row in rows]


def test_runs_may_overlap_nest_touch_and_be_empty() -> None:
    """Catches: a short run inside a long one that cuts the long one off."""
    q, k0, k1 = np.array([[0, 0, 0, 0, 1, 1], [0, 1, 5, 6, 3, 2], [6, 3, 7, 6, 4, 3]])
    pairs = of_runs(8, q, k0, k1)
    assert pairs.row(0).tolist() == [[0, 7]] and pairs.row(1).tolist() == [[2, 4]]


def test_more_runs_than_fit_are_refused_before_they_are_built() -> None:
    """Catches: a hostile table of slices that takes all memory."""
    huge = np.array([[0, MAX_RUNS, 0, 1, FULL], [0, 2, 0, 1, FULL]])
    with pytest.raises(TooManyRuns, match="at most"):
        of_slices(MAX_RUNS, huge)
