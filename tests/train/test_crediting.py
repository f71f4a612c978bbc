"""Credit as a configuration asks for it, and what is logged of it.

Catches: an option of `grpo.credit` that changes nothing; a share of episodes that another run would not choose again; a
comparison of branches with other branches' terms; undefined and clipped terms that are not counted; a cell of the
histogram that gets its neighbour's terms.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache
from typing import Any

import pytest
import tiny_policy
from credit_cases import Scored, siblings
from reporters import Reporters, play

from octopus.train.credit.crediting import EDGES, Credited, Crediting, comparison, term_figures
from octopus.train.credit.left_out import Term
from octopus.train.credit.world import Played
from octopus.train.job_config import CreditConfig, GrpoConfig, JobConfig, JobRunConfig, RolloutConfig


@cache
def episodes() -> tuple[Reporters, list[Played]]:
    """Four episodes of three branches. The last words of an answer are the model's, and a third of them earns 1."""
    environment = Scored(lambda answer: float(sum(answer.encode()) % 3 == 0), reference=[13, 300, 400, 0])
    engine = Reporters(("red", "hot", "old"), free=True)
    return engine, [Played(environment=environment, record=one) for one in play(engine, environment, range(4))]


def credited(
    rollouts: Sequence[Played] = (), rollout: RolloutConfig | None = None, **settings: Any
) -> Credited:
    engine, played = episodes()
    config = JobConfig(
        kind="job",
        run=JobRunConfig(folder="x"),
        grpo=GrpoConfig(steps=1, credit=CreditConfig(**settings)),
        rollout=rollout or RolloutConfig(),
    )
    crediting = Crediting(
        config, backbone=engine.backbone, dialect=tiny_policy.codec(), new_engine=lambda: engine
    )
    return crediting.credit(rollouts or played)


def values(found: Credited) -> list[list[float | None]]:
    return [[term.value for term in terms] for terms in found.terms]


def test_every_method_is_another() -> None:
    """No document was asked for, so coverage finds nothing; what a branch changes is a matter of words."""
    coverage, rescore, again = (values(credited(method=name)) for name in ("coverage", "rescore", "regenerate"))
    assert coverage == [[0.0] * 3] * 4
    assert all(value is not None and value != 0 for terms in rescore for value in terms)
    assert {value for terms in again for value in terms} == {-0.5, 0.0, 0.5}
    none = credited(method="none")
    assert none.terms == [()] * 4 and none.figures == {}


def test_more_samples_are_another_mean_and_shrunk_less() -> None:
    found = {value for terms in values(credited(method="regenerate", samples=3)) for value in terms}
    assert not found <= {-0.5, 0.0, 0.5}
    assert all(value is not None and abs(value / 0.25 - round(value / 0.25)) < 1e-9 for value in found)


def test_answers_are_decoded_as_rollouts_are() -> None:
    """Another temperature gives other answers; a turn without room for one earns nothing in any world."""
    usual = values(credited(method="regenerate"))
    assert values(credited(method="regenerate", rollout=RolloutConfig(temperature=0.01))) != usual
    assert values(credited(method="regenerate", rollout=RolloutConfig(turn_tokens=2))) == [[0.0] * 3] * 4


def test_a_share_of_the_episodes_is_decoded_again_for_comparison() -> None:
    """The same share of the same episodes whenever it is asked for; none where the method decodes anyway."""
    assert "regenerated_branches" not in credited(method="rescore").figures
    everything = credited(method="rescore", regenerate_share=1.0).figures
    assert everything["regenerated_branches"] == 12 and everything["regenerated_undefined"] == 0
    assert -1 <= everything["regenerated_rank_correlation"] <= 1
    some = credited(method="rescore", regenerate_share=0.5).figures
    assert 0 < some["regenerated_branches"] < 12 and some["regenerated_branches"] % 3 == 0
    assert some == credited(method="rescore", regenerate_share=0.5).figures
    assert "regenerated_branches" not in credited(method="regenerate", regenerate_share=1.0).figures


@pytest.mark.parametrize("method", ["coverage", "rescore", "regenerate"])
def test_the_scope_reaches_every_method(method: str) -> None:
    """The second of three branches wrote two tokens after it had read the first."""
    for scope, hidden in (("closure", True), ("recompute", False)):
        (terms,) = credited([siblings()], method=method, scope=scope).terms
        assert [term.hidden_tokens > 0 for term in terms] == [hidden, False, False]


def term(value: float | None, hidden_tokens: int = 0) -> Term:
    return Term(value=value, hidden_tokens=hidden_tokens)


def test_a_comparison_is_of_the_same_branches() -> None:
    cheap = [(term(0.1), term(0.2), term(None)), (term(0.3), term(0.4))]
    again = [(term(1.0), term(2.0), term(5.0)), (term(None), term(4.0))]
    assert comparison(cheap, again) == {
        "regenerated_branches": 5,
        "regenerated_undefined": 1,
        "regenerated_rank_correlation": pytest.approx(1.0),
    }


def test_figures_of_terms() -> None:
    terms = [term(value, 2) for value in (-2.0, -1.0, -0.02, 0.0, 0.005, 0.1, 0.999, 1.0, 7.0)] + [term(None, 3)]
    figures = term_figures(terms, clip=1.0)
    assert dict(zip((None, *EDGES), figures["branch_term_histogram"], strict=True)) == {
        None: 1, -1.0: 1, -0.5: 0, -0.1: 1, -0.01: 2, 0.01: 0, 0.1: 1, 0.5: 1, 1.0: 2
    }  # fmt: skip
    assert figures["branch_terms_undefined"] == 1 and figures["branch_terms_clipped"] == 2
    assert figures["hidden_tokens"] == 21
    assert figures["branch_term"] == pytest.approx(sum(t.value for t in terms if t.value is not None) / 9)
    assert term_figures([], clip=1.0)["branch_term"] is None
