"""`rescore` against the graph without the hidden tokens, executed token by token on the library's own weights.

What is hidden is told a second time here, token by token from who sees whom. Catches: a hidden token that is still
seen, directly or through whoever read it; a token hidden that nothing of the branch had reached; a copy at other
positions, with another state, or below the wrong parent; a scope taken for the other; worlds that see each other in
the row; an answer scored from the wrong predecessor; what is off the answer's line counted as on it.
"""

from __future__ import annotations

import itertools
from copy import deepcopy
from typing import Any

import pytest
import torch
from random_answers import Case, cases, models, rescored
from random_rollouts import tiny_engine

from octopus.core.grafting import Grafts
from octopus.rollout.sampling import Draw
from octopus.train.credit.counterfactual import AnswerLine, Scope
from octopus.train.credit.left_out import left_out_terms
from octopus.train.credit.world import World
from octopus.verify.executor import execute
from octopus.verify.oracle import OracleToken


def hidden_tokens(case: Case, branch: int, scope: Scope) -> set[int] | None:
    """The tokens that do not exist without a branch (thread id); None if one of them is on the answer's line."""
    reached: set[int] = set()
    for number, token in enumerate(case.tokens):
        if case.writers[number] == branch or any(other in reached for other, _ in token.visible):
            reached.add(number)
    line, before = set(), case.tokens[case.answer[0]].predecessor
    while before is not None:
        line.add(before)
        before = case.tokens[before].predecessor
    line |= set(case.answer)
    family = descendants(case, branch)
    hidden = {number for number in reached if case.writers[number] in family}
    if hidden & line:
        return None
    return hidden if scope == "recompute" else reached - line


def descendants(case: Case, branch: int) -> set[int]:
    places = {b.thread: b.place for b in case.played.record.episode.branches}
    return {t for t, place in places.items() if place[: len(places[branch])] == places[branch]}


def likelihood(model: Any, case: Case, hidden: set[int]) -> float:
    """The mean log-probability of the answer, executed without the hidden tokens; all others keep their positions."""
    kept = [number for number in range(len(case.tokens)) if number not in hidden]
    index = {number: place for place, number in enumerate(kept)}
    tokens = []
    for number in kept:
        token = case.tokens[number]
        visible = tuple((index[other], position) for other, position in token.visible if other in index)
        before = None if token.predecessor is None else index.get(token.predecessor)
        tokens.append(
            OracleToken(value=token.value, position=token.position, predecessor=before, visible=visible)
        )
    log_probabilities_IV = execute(model, tokens)[1].log_softmax(-1)
    scored = [
        log_probabilities_IV[index[case.tokens[number].predecessor], case.tokens[number].value]
        for number in case.answer
    ]
    return float(torch.stack(scored).mean())


@pytest.mark.parametrize("scope", ["closure", "recompute"])
@pytest.mark.parametrize("family", ["llama", "qwen3.5"])
def test_rescoring_equals_the_graph_without_the_branch(family: str, scope: Scope) -> None:
    """All branches of all episodes at once, in float64 to 1e-10."""
    both, compared, undefined, others = models(family), 0, 0, 0
    asked_for = list(cases(family))
    rescore = rescored(both, scope)
    worlds = [
        World(played=case.played, hidden=hidden)
        for case in asked_for
        for hidden in [frozenset[int](), *(frozenset({b}) for b in range(len(case.played.threads)))]
    ]
    found = iter(rescore.values(worlds))
    with torch.no_grad():
        for case in asked_for:
            assert next(found).value == pytest.approx(likelihood(both.plain, case, set()), abs=1e-10)
            for branch in case.played.threads:
                one, hidden = next(found), hidden_tokens(case, branch, scope)
                undefined += hidden is None
                assert (one.value is None) == (hidden is None)
                if hidden is not None:
                    assert one.value == pytest.approx(likelihood(both.plain, case, hidden), abs=1e-10)
                    threads = set(case.played.threads) - {branch}
                    counted = sum(case.writers[number] in threads for number in hidden)
                    assert one.hidden_tokens == counted
                    others += counted > 0
                    compared += 1
    assert compared > 25 and others > 5, (compared, undefined, others)


def test_rows_do_not_change_values() -> None:
    """One row for all, or a row for each world: worlds see nothing of each other."""
    both = models("qwen3.5")
    rollouts = [case.played for case in cases("qwen3.5")][:6]
    one = left_out_terms(rescored(both, "closure"), rollouts)
    many = left_out_terms(rescored(both, "closure", budget_tokens=1), rollouts)
    for terms, others in zip(one, many, strict=True):
        assert [term.value for term in terms] == pytest.approx([term.value for term in others], abs=1e-12)


@pytest.mark.parametrize("family", ["llama", "qwen3.5"])
def test_an_engine_decodes_in_the_world_that_is_rescored(family: str) -> None:
    """The likeliest next token and its log-probability, from pages and states, and from the row: gaps and all."""
    both = models(family)
    engine = tiny_engine(deepcopy(both.plain), pages=400, state_slots=200)
    rescore = rescored(both, "closure")
    for case in itertools.islice(cases(family), 8):
        line = AnswerLine(case.played.record.episode)
        graphs = [line.without([branch], "closure") for branch in range(len(case.played.threads))]
        places = [graph.place for graph in graphs if graph.place is not None]
        grafts = Grafts(engine.graph)
        threads = [grafts.thread_at(place) for place in places]
        chosen = engine.sample(threads, [Draw(0, (0,), 0)] * len(threads), temperature=0.0)
        answers = [
            line.place.continued_by((token,), place) for place, (token, _) in zip(places, chosen, strict=True)
        ]
        if answers:
            expected = [log_probability for _, log_probability in chosen]
            assert rescore._scores(answers) == pytest.approx(expected, abs=1e-10)
        grafts.drop()
        engine.trim()
    assert not engine.graph.segments and not engine.graph.threads
