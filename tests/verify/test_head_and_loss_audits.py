"""Each rule of heads, targets and gradients on the smallest case that breaks it."""

from dataclasses import replace

import numpy as np
import pytest
from verify_subjects import MOUNT, PARENTS, STRETCHES, codes, found, only, tree

from octopus.verify.audits import STATIC, run
from octopus.verify.facets import EmbeddingGradients, Heads, LossTerms
from octopus.verify.findings import Outcome
from octopus.verify.oracle import reached_by, seen_by
from octopus.verify.subject import Declared, Subject

HEADS = Heads(query=4, key_value=2, dim=8)


def with_heads(heads: Heads) -> Subject:
    return Subject(name="x", length=5, heads=heads)


@pytest.mark.parametrize(
    ("change", "code", "words"),
    [
        ({"key_value": 3}, "OCT301", "cannot share"),
        ({"tensor_parallel": 3}, "OCT301", "3 ranks"),
        ({"used_H": np.array([0, 1, 0, 1])}, "OCT302", "tiled"),
        ({"used_H": np.array([0, 0, 0, 0])}, "OCT302", "all query heads use"),
        ({"expanded_shape": (1, 2, 10, 8)}, "OCT303", "tokens were repeated"),
        ({"gradient_HG": np.array([[1, 0], [1, 0], [0, 1], [1e-9, 1]])}, "OCT304", "reaches key/value head 0"),
        ({"gradient_HG": np.array([[1, 0], [0, 0], [0, 1], [0, 1]])}, "OCT304", "does not reach"),
        ({"rank_heads": ((0,), (0,))}, "OCT305", "needs key/value head 1"),
    ],
)
def test_heads(change: dict[str, object], code: str, words: str) -> None:
    """Catches: each head rule on one wrong number."""
    finding = only(with_heads(replace(HEADS, **change)))
    assert finding.code == code and words in f"{finding.message} {finding.cause}"


def test_right_heads_pass() -> None:
    """Catches: a group that is counted the wrong way round."""
    right = replace(
        HEADS,
        used_H=np.array([0, 0, 1, 1]),
        expanded_shape=(1, 4, 5, 8),
        gradient_HG=np.array([[2, 0], [1, 0], [0, 1], [0, 3]]),
        rank_heads=((0,), (0,), (1,), (1,)),
        tensor_parallel=4,
    )
    assert not found(with_heads(right))


def terms(predictors: list[int], rows: list[int] | None = None, **more: object) -> LossTerms:
    given = list(range(1, len(predictors) + 1)) if rows is None else rows
    return LossTerms(token_rows_N=np.array(given), predictor_rows_N=np.array(predictors), **more)


def test_the_right_targets_pass() -> None:
    """Catches: a first token of a branch that must be scored from its neighbour."""
    assert not found(tree(loss=terms(PARENTS[1:])))


def test_labels_shifted_by_one_row_are_found_and_named() -> None:
    """Catches: the shift of a packed row, which no mask shows."""
    findings = found(tree(loss=terms([0, 1, 2, 3, 4, 5])))
    assert [(f.code, f.witness.row, f.witness.expected, f.witness.actual) for f in findings] == [
        ("OCT404", 3, "1", "2"),
        ("OCT404", 5, "1", "4"),
    ]
    assert all("shifted by one row" in str(finding.cause) for finding in findings)


def test_tokens_count_once() -> None:
    """Catches: a token with two terms, one without, and a masked one with a term."""
    twice = terms([0, 0], rows=[1, 1])
    assert "2 loss terms" in only(tree(loss=twice)).message
    assert not found(tree(loss=twice, declared=Declared(loss_weights=True)))
    wanted = np.isin(np.arange(7), [1, 2])
    assert "no loss term" in only(tree(loss=terms([0], rows=[1], supervised_T=wanted))).message
    masked = only(tree(loss=terms([0, 1, 1], rows=[1, 2, 3], supervised_T=wanted)))
    assert "is masked" in masked.message and masked.witness.row == 3


def test_a_token_that_begins_its_path_has_no_predictor() -> None:
    """Catches: the first token of a document that is predicted from the document before."""
    assert "begins its path" in only(tree(loss=terms([6], rows=[0]))).message


def test_denominators() -> None:
    """Catches: a loss divided by its own pack's count."""
    loss = terms(PARENTS[1:], denominator=6.0, declared_denominator=6.0)
    assert not found(tree(loss=loss))
    assert only(tree(loss=replace(loss, declared_denominator=24.0))).code == "OCT405"
    weighted = replace(loss, weights_N=np.full(6, 0.5), denominator=None, declared_denominator=3.0)
    assert not found(tree(loss=weighted))
    assert only(tree(loss=replace(weighted, declared_denominator=6.0))).code == "OCT405"


def test_ratios_before_the_first_update() -> None:
    """Catches: a ratio that is off by more than the precision, and NaN."""
    loss = terms(PARENTS[1:], log_ratio_N=np.full(6, 3e-6))
    assert not found(tree(loss=loss))
    for value in (1e-2, np.nan):
        ratios = np.zeros(6)
        ratios[2] = value
        assert only(tree(loss=replace(loss, log_ratio_N=ratios))).witness.row == 3
    rough = replace(loss, log_ratio_N=np.full(6, 1e-2), dtype="bfloat16")
    assert not found(tree(loss=rough))


def test_what_may_be_rounding_is_neither_clean_nor_wrong() -> None:
    """Catches: a typed limit that judges a model whose noise nobody has measured, and measured noise left unused."""
    for dtype, off in (("float32", 1e-4), ("bfloat16", 0.5)):
        loss = terms(PARENTS[1:], log_ratio_N=np.full(6, off), dtype=dtype)
        (check,) = [c for c in run(STATIC, [tree(loss=loss)]).checks if c.audit == "first ratio"]
        assert check.outcome is Outcome.INCONCLUSIVE and "log_ratio_noise" in check.reason
        quiet, loud = (replace(loss, log_ratio_noise_N=np.array([0.0, -off * times])) for times in (0.1, 0.5))
        assert only(tree(loss=quiet)).code == "OCT408" and not found(tree(loss=loud))
    broken = replace(loss, log_ratio_noise_N=np.array([np.nan]))
    (check,) = [c for c in run(STATIC, [tree(loss=broken)]).checks if c.audit == "first ratio"]
    assert check.outcome is Outcome.INCONCLUSIVE


def test_nothing_is_sampled_right_after_a_mount() -> None:
    """Catches: a sampled first token of the join, which its predictor's view did not hold."""
    sampled = np.arange(7) == 6
    assert not found(tree(loss=terms(PARENTS[1:], sampled_T=sampled)))
    assert only(tree(loss=terms(PARENTS[1:], sampled_T=sampled | (np.arange(7) == 5)))).code == "OCT409"


def gradients(losses: list[list[int]]) -> EmbeddingGradients:
    """What right losses leave on each row."""
    reached = reached_by(seen_by(PARENTS, [(MOUNT.at, MOUNT.k0, MOUNT.k1)]))
    norms = np.zeros((len(losses), 7))
    for index, rows in enumerate(losses):
        norms[index, sorted(set().union(*(reached[row] for row in rows)))] = 0.5
    return EmbeddingGradients(norms_BT=norms, loss_rows=tuple(map(np.array, losses)))


def test_gradients_reach_exactly_what_can_have_influence() -> None:
    """Catches: a leak of the smallest size, and a prefix that nothing reaches."""
    right = gradients([[2], [6]])
    assert not found(tree(gradients=right))
    for loss, row, value, code in ((0, 3, 1e-300, "OCT401"), (1, 3, 0.0, "OCT402"), (1, 0, 1e-12, "OCT402")):
        norms = right.norms_BT.copy()
        norms[loss, row] = value
        finding = only(tree(gradients=replace(right, norms_BT=norms)))
        assert (finding.code, finding.witness.row, finding.location.segments[0]) == (code, row, f"loss {loss}")
    assert codes(tree(gradients=right), "OCT4") == set() and STRETCHES[0].name == "root"
