"""Packs cut by loss terms, and dealt to ranks by work.

Catches: a part without rows that its terms hang on; a term that is lost, or counted in two parts; predictors that still
count the rows of the whole; a step that counts the gradients of a pass that died; a deal that ignores the pairs.
"""

from __future__ import annotations

import math
from dataclasses import fields, replace

import numpy as np
import pytest
import rank_work
from rank_work import FAMILIES, STEP, Shortage, episodes_pack, full, three_steps

from octopus.core.errors import PlanError
from octopus.models.backbone import Backbone
from octopus.train.config import LossConfig
from octopus.train.packing import Pack
from octopus.train.parallel.balance import Work, deal
from octopus.train.parallel.ranks import ALONE
from octopus.train.parallel.split import halves, part, split
from octopus.train.passes import run_pass


def gradient(family: str, packs: list[Pack]) -> dict[str, np.ndarray]:
    backbone, counts = Backbone(FAMILIES[family]()), episodes_pack().counts
    for one in packs:
        run_pass(backbone, one, loss=LossConfig(), step=STEP, counts=counts)
    return full(backbone, lambda parameter: parameter.grad)


@pytest.mark.parametrize("family", FAMILIES)
def test_split_packs_add_up_to_the_whole(family: str) -> None:
    """Threads of all episodes mixed, the last one by itself: every gradient to 1e-12."""
    whole = episodes_pack()
    parts = [part(whole, sequences) for sequences in (range(0, 11, 2), range(1, 11, 2), [11])]
    assert parts[2].plan.length < parts[0].plan.length < whole.plan.length
    expected = gradient(family, [whole])
    for name, value in gradient(family, parts).items():
        error = np.linalg.norm(value - expected[name])
        assert error <= 1e-12 * np.linalg.norm(expected[name]), name


def test_each_term_is_in_one_part_with_all_its_columns() -> None:
    whole = episodes_pack()
    parts = [part(whole, [sequence]) for sequence in range(12)]
    for column in (field.name for field in fields(Pack) if field.name.endswith("_N")):
        joined = np.concatenate([getattr(one, column) for one in parts])
        assert sorted(map(str, joined)) == sorted(map(str, getattr(whole, column)))
    assert sum((one.counts for one in parts), type(whole.counts)()).terms == whole.counts.terms
    for one in parts:
        rows_N = one.targets.token_rows_N
        inside_N = rows_N >= 0
        assert (one.plan.tokens_T[rows_N[inside_N]] == one.targets.labels_N[inside_N]).all()
        assert (one.plan.predecessors_T[rows_N[inside_N]] == one.targets.predictor_rows_N[inside_N]).all()


def test_a_pack_within_the_budget_stays_as_it_is() -> None:
    whole = episodes_pack()
    assert split(whole, budget_tokens=whole.plan.length)[0] is whole


def test_parts_keep_to_the_budget_wherever_one_sequence_does() -> None:
    """Row 63: as many packs as the pieces need, not as many as the sum does; no part is larger for want of another."""
    whole = episodes_pack(copies=2)
    assert [one.plan.length for one in split(whole, budget_tokens=151)] == [76] * 6
    assert [one.plan.length for one in split(whole, budget_tokens=152)] == [152] * 3


def test_a_sequence_that_hangs_on_everything_is_not_cut() -> None:
    (one,) = split(episodes_pack(episodes=1), budget_tokens=10)
    with pytest.raises(PlanError, match="a pack of 76 rows cannot be cut: one sequence"):
        halves(one)


def test_a_step_without_a_loss_term_moves_nothing() -> None:
    """Catches: weight decay and momentum of a step in which there was nothing to learn."""
    nothing = replace(episodes_pack(episodes=0))
    assert nothing.loss_terms == 0
    result = three_steps(ALONE, family="llama", episodes=0)
    before = three_steps(ALONE, family="llama", steps=0)["weights"]
    assert all((result["weights"][name] == value).all() for name, value in before.items())
    assert result["results"][0]["updated"] and math.isnan(result["results"][0]["log_ratio_max"])


@pytest.mark.parametrize("where", ["forward", "backward"])
def test_out_of_memory_is_a_smaller_retry_with_the_same_update(where: str) -> None:
    """In the second of two passes: the first one's gradients, and what the dead one left, are dropped."""
    expected = three_steps(ALONE, family="llama", steps=1)
    ours = three_steps(ALONE, family="llama", steps=1, rows=160, shortage=Shortage(rows=100, where=where))
    assert ours["passes"] == 2
    assert ours["results"][0]["oom_retries"] == 1
    for name, value in expected["gradients"].items():
        assert np.linalg.norm(ours["gradients"][name] - value) <= 1e-10 * np.linalg.norm(value), name


def test_packs_that_never_fit_end_in_an_error_and_untouched_weights() -> None:
    result = three_steps(ALONE, family="llama", steps=1, shortage=Shortage(rows=10, where="backward"))
    assert "on rank 0 a pack of 76 rows cannot be cut" in result["error"]
    assert result["gradients"] == {}


def test_two_packs_of_unequal_work_are_balanced_within_a_tenth() -> None:
    """Catches: packs that are dealt by number, or by rows alone."""
    work = Work(row=1.0, pair=1.0, term=0.0)
    packs = [episodes_pack(copies=6), episodes_pack(episodes=1)]
    hands = deal(packs, work, ranks=2)
    loads = [sum(map(work, hand)) for hand in hands]
    assert max(loads) <= 1.1 * sum(loads) / 2
    assert sum(one.loss_terms for hand in hands for one in hand) == sum(one.loss_terms for one in packs)
    by_pairs = deal([episodes_pack(copies=2), *[episodes_pack(episodes=1)] * 6], replace(work, row=0.0), ranks=2)
    assert abs(sum(map(work, by_pairs[0])) - sum(map(work, by_pairs[1]))) <= 0.1 * sum(map(work, by_pairs[0]))


def test_work_counts_what_a_model_computes() -> None:
    """Llama: 2 layers of 4 heads of 32, hidden 64, MLP 96, 64 tokens; two operations for each weight."""
    work = Work.of(Backbone(FAMILIES["llama"]()))
    layer = 64 * 128 + 2 * 64 * 64 + 128 * 64 + 3 * 64 * 96
    assert work.row == 2 * 2 * layer
    assert work.pair == 4 * 2 * 4 * 32
    assert work.term == 2 * 64 * 64
    assert rank_work.episodes_pack().plan.pairs * work.pair < work(episodes_pack())
