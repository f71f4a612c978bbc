"""`rescore` on episodes made by hand: what counts as seen, as left and as right, and that one pass does it all.

Catches: a branch that nobody read and that is paid; an undefined term that is paid, or a defined one that is not; a
wrong answer whose helpers are paid; a pass for each world; a segment that stands in the row twice; a gradient.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
import torch
from credit_cases import played_of, siblings
from random_answers import models, rescored

from octopus.attention.plan import Plan
from octopus.core.graph import Graph
from octopus.models.backbone import Backbone
from octopus.train.credit.left_out import left_out_terms
from octopus.train.credit.shapley import shapley_values
from octopus.train.credit.world import Played, World


def test_only_what_is_seen_is_worth_anything() -> None:
    """A branch that nobody read is worth exactly nothing, those that were read are not."""
    for scope in ("closure", "recompute"):
        (terms,) = left_out_terms(rescored(models("llama"), scope), [siblings()])
        values = [term.value for term in terms]
        assert values[2] == 0.0 and all(value is not None and abs(value) > 1e-3 for value in values[:2])
        assert [term.hidden_tokens for term in terms] == [2 if scope == "closure" else 0, 0, 0]


def test_scopes_differ_where_a_branch_was_read_by_another() -> None:
    both = models("llama")
    values = [left_out_terms(rescored(both, scope), [siblings()])[0][0].value for scope in ("closure", "recompute")]
    assert values[0] != pytest.approx(values[1], abs=1e-6)


def test_where_hiding_leaves_no_branch_the_term_is_undefined() -> None:
    graph = Graph()
    root = graph.thread()
    graph.append(root, [1, 2])
    (branch,) = graph.fork(root)
    graph.append(branch, [3])
    graph.read_thread(root, branch)
    graph.append(root, [4, 5])
    (terms,) = left_out_terms(rescored(models("llama"), "closure"), [played_of(graph, root, answer_tokens=1)])
    assert [term.value for term in terms] == [None]


def test_a_branch_that_is_left_in_part_or_was_not_touched_is_left() -> None:
    """Two branches that read each other: of each the first half is left without the other. An unread one stays too."""
    graph = Graph()
    root = graph.thread()
    graph.append(root, [1, 2])
    both = graph.fork(root, 2)
    for thread in both:
        graph.append(thread, [3, 4])
    halves = [graph.fork(thread)[0] for thread in both]
    for thread, half in zip(both, reversed(halves), strict=True):
        graph.read_thread(thread, half)
        graph.append(thread, [5, 6])
    for thread in both:
        graph.read_thread(root, thread)
    graph.append(root, [7, 8])
    played = played_of(graph, root, answer_tokens=1, branches=both)
    (terms,) = left_out_terms(rescored(models("llama"), "closure"), [played])
    assert [term.hidden_tokens for term in terms] == [2, 2] and all(term.value for term in terms)
    graph = Graph()
    root = graph.thread()
    graph.append(root, [1, 2])
    both = graph.fork(root, 2)
    for thread in both:
        graph.append(thread, [3])
    graph.read_thread(root, both[0])
    graph.append(root, [7, 8])
    played = played_of(graph, root, answer_tokens=1)
    (terms,) = left_out_terms(rescored(models("llama"), "closure"), [played])
    assert terms[0].value and terms[1].value == 0.0


def test_the_reference_answer_is_asked_for_and_else_the_own_one_by_its_reward() -> None:
    """Catches a wrong answer whose helpers are paid, and a reference that is not the one scored."""
    rescore = rescored(models("llama"), "closure")
    own, half, none = (siblings(reward=reward) for reward in (1.0, 0.5, 0.0))
    same, other = siblings(reference=[12, 13], reward=0.0), siblings(reference=[20, 21, 22])
    values = [[term.value for term in terms] for terms in left_out_terms(rescore, [own, half, none, same, other])]
    assert values[1] == pytest.approx([0.5 * value for value in values[0]])
    assert values[2] == [0.0, 0.0, 0.0]
    assert values[3] == pytest.approx(values[0], abs=1e-12)
    assert abs(values[4][0] - values[0][0]) > 1e-3


def test_an_episode_without_an_answer_is_worth_nothing() -> None:
    played = siblings()
    silent = Played(environment=played.environment, record=replace(played.record, answer=None))
    (terms,) = left_out_terms(rescored(models("llama"), "closure"), [silent])
    assert [term.value for term in terms] == [0.0, 0.0, 0.0]


def test_shapley_values_share_out_what_all_branches_changed() -> None:
    """Eight worlds in one row. With nobody left the answer still stands somewhere, so that world has a value."""
    rescore, played = rescored(models("llama"), "closure"), siblings()
    full, none = rescore.values([World(played=played), World(played=played, hidden=frozenset({0, 1, 2}))])
    assert full.value is not None and none.value is not None and none.empty
    values = shapley_values(rescore, played)
    assert sum(values) == pytest.approx(full.value - none.value, abs=1e-12) and values[2] == pytest.approx(0)


def test_all_worlds_ride_in_one_pass(monkeypatch: pytest.MonkeyPatch) -> None:
    """Catches a pass a world, a segment that several worlds share and that is laid out twice, and a gradient."""
    both, plans = models("llama"), []
    packed = Backbone.packed

    def spying(self: Backbone, plan: Plan, **settings: Any) -> Any:
        assert not torch.is_grad_enabled()
        plans.append(plan)
        return packed(self, plan, **settings)

    monkeypatch.setattr(Backbone, "packed", spying)
    left_out_terms(rescored(both, "closure"), [siblings(), siblings()])
    (plan,) = plans
    # Each episode: the root's 3; branches of 2 and 1 + 2, the third not at all; the root's second segment and its two
    # copies (2 tokens each, the first with the answer's 2); four answers of 2.
    assert plan.length == 2 * (3 + 2 + 3 + (4 + 2 + 2) + 4 * 2)
