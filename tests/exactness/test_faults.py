"""The exactness check finds every planted fault, and passes when none is planted.

Catches a check that has gone blind: a tolerance too wide, graphs too tame, a seam that is no longer on the way.
"""

from functools import cache

import pytest
from comparison import Outcome, Pair, assert_same, pair, run_executor, run_packed
from faults import FAULTS, PARTIAL_ROTARY_FAULTS, RECURRENT_FAULTS
from random_graphs import RandomEpisode, random_episode
from tiny_models import tiny_llama, tiny_qwen35

QWEN_FAULTS = FAULTS + RECURRENT_FAULTS + PARTIAL_ROTARY_FAULTS
CASES = [("llama", fault) for fault in FAULTS] + [("qwen3.5", fault) for fault in QWEN_FAULTS]
SEEDS = range(4)


@cache
def expected(family: str) -> tuple[Pair, list[tuple[RandomEpisode, Outcome]]]:
    both = pair(tiny_llama() if family == "llama" else tiny_qwen35())
    episodes = [random_episode(seed, size=24) for seed in SEEDS]
    return both, [(episode, run_executor(both.plain, episode.oracle.tokens)) for episode in episodes]


def check(family: str) -> None:
    both, outcomes = expected(family)
    for episode, outcome in outcomes:
        assert_same(run_packed(both.backbone, episode), outcome)


@pytest.mark.parametrize(("family", "fault"), CASES, ids=lambda case: getattr(case, "__name__", case))
def test_planted_fault_is_found(family: str, fault, monkeypatch: pytest.MonkeyPatch) -> None:
    with monkeypatch.context() as patch:
        fault(patch)
        with pytest.raises(AssertionError, match="is off by"):
            check(family)


@pytest.mark.parametrize("family", ["llama", "qwen3.5"])
def test_without_a_fault_the_check_passes(family: str) -> None:
    check(family)
