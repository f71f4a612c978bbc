"""Steps of two ranks against the same steps of one process: trainers.md's classes of bugs, over processes.

Catches: means instead of sums over ranks; a denominator of one rank's own terms; a rank that is idle and hangs the
others or misses an update; a gradient that is clipped by a share of its length; tied embeddings that come apart.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import rank_work
import torch
from rank_pool import RankPool, rank_pool

from octopus.train.parallel.ranks import ALONE

NEVER_EQUAL = {"step_seconds", "rollout_seconds", "credit_seconds", "tool_seconds"}
NEVER_EQUAL |= {"packed_tokens", "oom_retries"}  # Parts pack twice what they share.


@pytest.fixture(scope="module")
def two(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RankPool]:
    with rank_pool(2, tmp_path_factory.mktemp("ranks")) as pool:
        yield pool


@cache
def alone(**settings: Any) -> dict[str, Any]:
    return rank_work.three_steps(ALONE, **settings)


def assert_same(ours: dict[str, Any], expected: dict[str, Any], *, tolerance: float = 1e-10) -> None:
    assert ours["error"] is expected["error"] is None
    for mine, theirs in zip(ours["results"], expected["results"], strict=True):
        for name in theirs.keys() - NEVER_EQUAL:
            value = theirs[name]
            if isinstance(value, float):
                value = pytest.approx(value, rel=tolerance, abs=tolerance, nan_ok=True)
            assert mine[name] == value, name
    for kind in ("gradients", "weights"):
        assert ours[kind].keys() == expected[kind].keys()
        for name, value in expected[kind].items():
            error = np.linalg.norm(ours[kind][name] - value)
            assert error <= tolerance * np.linalg.norm(value) + 1e-14, (kind, name)


@pytest.mark.parametrize("family", ["llama", "qwen35"])
def test_three_steps_of_two_ranks_are_those_of_one(two: RankPool, family: str) -> None:
    """Rows 3, 5, 6, 7 and 31: loss, every gradient, and the weights after three steps; two passes against one."""
    ours = two(rank_work.three_steps, family=family)
    assert sorted(result["passes"] for result in ours) == [1, 2]
    for result in ours:
        assert_same(result, alone(family=family))


def test_adapters_are_trained_beside_frozen_weights(two: RankPool) -> None:
    """Catches: shards of frozen weights that take part in the gradient's length or its sum."""
    expected = alone(family="qwen35", adapter=True)
    assert all(".lora_" in name for name in expected["gradients"])
    for result in two(rank_work.three_steps, family="qwen35", adapter=True):
        assert_same(result, expected)


def test_activation_checkpointing_changes_nothing(two: RankPool) -> None:
    """Row 29: a plan that travels as a keyword is there again in the backward pass."""
    for result in two(rank_work.three_steps, family="qwen35", recompute=True):
        assert_same(result, alone(family="qwen35"))


def test_a_rank_without_a_pack_takes_the_same_step(two: RankPool) -> None:
    """Row 30: one pack that cannot be cut, two ranks."""
    ours = two(rank_work.one_pack)
    assert [result["passes"] for result in ours] == [1, 0]
    for result in ours:
        assert_same(result, rank_work.one_pack(ALONE))


@pytest.mark.parametrize("where", ["forward", "backward"])
def test_out_of_memory_on_one_rank_is_the_same_smaller_retry_on_both(two: RankPool, where: str) -> None:
    """Catches: a rank that waits for the one that died; a dead pass's gradients counted; FSDP stuck after an error."""
    shortage = rank_work.Shortage(rows=100, where=where, rank=1)
    for result in two(rank_work.three_steps, family="qwen35", copies=2, shortage=shortage):
        assert [step["oom_retries"] for step in result["results"]] == [1, 1, 1]
        assert_same(result, alone(family="qwen35", copies=2))


def test_memory_for_no_pack_at_all_is_refused_on_both_ranks(two: RankPool) -> None:
    """Catches: weights that moved by the dropped gradient; a rank that goes on alone."""
    shortage = rank_work.Shortage(rows=10, where="backward", rank=1)
    for result in two(rank_work.three_steps, family="llama", shortage=shortage):
        assert "on rank 1 a pack of 76 rows cannot be cut" in result["error"]
        assert result["results"] == [] and result["gradients"] == {}
        untouched = alone(family="llama", steps=0)["weights"]
        assert all((result["weights"][name] == value).all() for name, value in untouched.items())


def test_passes_in_bfloat16_on_weights_in_float32(two: RankPool) -> None:
    """Catches: gradients that are rounded to bfloat16 each time another pack's are added."""
    expected = alone(family="llama", dtype=torch.float32)
    for result in two(rank_work.three_steps, family="llama", dtype=torch.float32, compute_dtype=torch.bfloat16):
        assert {value.dtype for value in result["gradients"].values()} == {np.dtype("float32")}
        for name, value in alone(family="llama", dtype=torch.float32, steps=1)["gradients"].items():
            assert value.shape == result["gradients"][name].shape
        assert result["results"][0]["loss"] == pytest.approx(expected["results"][0]["loss"], abs=0.03)
        assert result["results"][0]["loss"] != expected["results"][0]["loss"]


def test_rollouts_are_shared_out_and_learned_from_as_by_one(two: RankPool) -> None:
    """Row 35. Catches: draws that hang on the rank; old weights in rollouts; groups that stand beside other tasks."""
    expected = rank_work.stage_steps(ALONE)
    assert len(expected["texts"]) == 6 and expected["names"] == expected["asked"]
    for result in two(rank_work.stage_steps):
        assert result["texts"] == expected["texts"] and result["names"] == expected["names"]
        assert_same(result, expected)


def test_json_values_arrive_whole(two: RankPool) -> None:
    """Catches: floats that are rounded on the way, texts cut to the shortest rank's."""
    first, second = two(rank_work.gathered)
    assert first == second == [[0.1, None, "é"], [1 / 3, -math.inf, "é" * 1000]]


@pytest.mark.slow
@pytest.mark.parametrize("family", ["llama", "qwen35"])
def test_four_ranks_one_of_them_idle(family: str, tmp_path: Path) -> None:
    """Row 30: three episodes on four ranks, and twelve."""
    with rank_pool(4, tmp_path) as four:
        for copies, passes in ((1, [0, 1, 1, 1]), (4, [3, 3, 3, 3])):
            ours = four(rank_work.three_steps, family=family, copies=copies, rows=76)
            assert sorted(result["passes"] for result in ours) == passes
            for result in ours:
                assert_same(result, alone(family=family, copies=copies))
        shortage = rank_work.Shortage(rows=100, where="backward", rank=2)
        for result in four(rank_work.three_steps, family=family, copies=4, shortage=shortage):
            assert_same(result, alone(family=family, copies=4))
