"""Answers decoded again, on an engine whose policy says what it sees: what a branch changed in the reward.

Catches: a hidden branch that is still seen; other noise than the rollout's; an answer read otherwise than the protocol
reads it; a turn that is no answer and is paid; left threads and pages; differences that are not shrunk; values of one
episode given to another.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import cache
from typing import Any

import pytest
import tiny_policy
from credit_cases import Scored
from reporters import Reporters, play

from octopus.rollout.engine import Engine
from octopus.train.credit.left_out import left_out_terms
from octopus.train.credit.regenerate import Regenerate
from octopus.train.credit.shapley import shapley_values
from octopus.train.credit.world import Played, World


def regenerate(engine: Engine, *, samples: int = 1, scope: Any = "closure") -> Regenerate:
    return Regenerate(
        engine, tiny_policy.codec(), scope=scope, samples=samples, temperature=1.0, turn_tokens=32
    )


def played(words: Sequence[str], score: Callable[[str], float]) -> tuple[Regenerate, Played]:
    engine, environment = Reporters(words), Scored(score)
    (record,) = play(engine, environment)
    assert record.answer == " ".join(words)
    return regenerate(engine), Played(environment=environment, record=record)


GAMES: dict[str, tuple[Sequence[str], Callable[[str], float], Sequence[float], Sequence[float]]] = {
    "redundant": (("red", "red", "old"), lambda answer: float("red" in answer), (0, 0, 0), (0.5, 0.5, 0)),
    "synergistic": (("red", "hot", "old"), lambda a: float("red hot" in a), (1, 1, 0), (0.5, 0.5, 0)),
    "useless": (("red", "old"), lambda answer: float("red" in answer), (1, 0), (1, 0)),
    "harmful": (("red", "old"), lambda a: float("red" in a) - 0.4 * ("old" in a), (1, -0.4), (1, -0.4)),
}


@pytest.mark.parametrize("name", GAMES)
def test_branches_of_real_episodes_are_worth_what_their_words_change(name: str) -> None:
    """The toy games, played: terms and Shapley values agree unless branches cover for, or need, each other."""
    words, score, left_out, shapley = GAMES[name]
    evaluation, one = played(words, score)
    (terms,) = left_out_terms(evaluation, [one])
    assert [term.value for term in terms] == pytest.approx([0.5 * value for value in left_out])  # 1 / (1 + 1)
    assert shapley_values(evaluation, one) == pytest.approx(shapley)


@cache
def free_episodes() -> tuple[Engine, list[Played]]:
    """Two branches and an answer whose last words the model has sampled, with several seeds."""
    engine, environment = Reporters(("red", "hot"), free=True), Scored(worth)
    return engine, [Played(environment=environment, record=one) for one in play(engine, environment, range(4))]


def worth(answer: str) -> float:
    """A number that nearly every other answer has not."""
    return float(int.from_bytes(answer.encode()) % 99_991)


def test_the_same_noise_says_the_same_again() -> None:
    """With nothing hidden the first sample is the rollout's answer; its second is another."""
    engine, episodes = free_episodes()
    once, twice = regenerate(engine), regenerate(engine, samples=2)
    full = [World(played=one) for one in episodes]
    values = [valued.value for valued in once.values(full)]
    assert values == [one.record.episode.reward for one in episodes] and len(set(values)) == len(values)
    assert all(two.value != one for one, two in zip(values, twice.values(full), strict=True))
    assert (once.trust, twice.trust) == (1 / 2, 2 / 3)


def test_worlds_are_valued_alone_or_together_and_leave_nothing_behind() -> None:
    engine, episodes = free_episodes()
    evaluation = regenerate(engine)
    worlds = [World(played=one, hidden=frozenset(h)) for h in ((), (0,), (1,)) for one in episodes]
    together = evaluation.values(worlds)
    assert together == [evaluation.values([world])[0] for world in worlds]
    engine.graph.check()
    assert engine.graph.retention.pages is not None and engine.graph.retention.pages.used == 0
    assert not engine.graph.threads and not engine.graph.segments


def test_what_does_not_fit_into_memory_is_undefined_and_counted() -> None:
    _, episodes = free_episodes()
    (terms,) = left_out_terms(regenerate(Reporters(("red", "hot"), free=True, pages=2)), episodes[:1])
    assert [term.value for term in terms] == [None, None]


def test_a_turn_that_is_no_answer_earns_nothing() -> None:
    """Without its answer's room of tokens the root ends in a fault, in every world."""
    engine, episodes = free_episodes()
    short = Regenerate(
        engine, tiny_policy.codec(), scope="closure", samples=1, temperature=1.0, turn_tokens=2
    )
    assert [one.value for one in short.values([World(played=one) for one in episodes])] == [0.0] * 4
