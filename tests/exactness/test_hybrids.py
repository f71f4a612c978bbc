"""Qwen3-Next, Granite 4 and Nemotron-H in float64: one packed pass equals the library on each thread, and the executor.

Catches: a wrong projection layout, decay, step limit, group of heads, convolution bias, gate, multiplier, router or
expert; a position where attention has none; a state that a mount touches or a fork's child does not start from.
"""

import pytest
import torch
from comparison import OnlyFloat64, assert_same, pair, run_executor, run_library, run_packed
from random_graphs import FORK_ONLY, random_episode
from tiny_models import tiny_granite, tiny_nemotron, tiny_qwen3_next

from octopus.models import recurrent

SIZE = 15
VARIANTS = {
    "qwen3-next": tiny_qwen3_next,
    "granite": tiny_granite,
    "granite-rope": lambda: tiny_granite(
        position_embedding_type="rope", num_local_experts=0, mamba_conv_bias=False, mamba_proj_bias=True,
        time_step_limit=(0.4, 0.9),
    ),
    "nemotron": tiny_nemotron,
    "nemotron-latent": lambda: tiny_nemotron(
        moe_latent_size=24, use_bias=True, mlp_bias=True, attention_bias=True, norm_topk_prob=False, time_step_min=0.5
    ),
}  # fmt: skip
EACH = pytest.mark.parametrize("name", VARIANTS)


@EACH
def test_packed_equals_token_by_token(name: str) -> None:
    both = pair(VARIANTS[name]())
    for seed in range(4):
        episode = random_episode(seed, size=SIZE)
        with OnlyFloat64():
            found = run_packed(both.backbone, episode)
        assert_same(found, run_executor(both.plain, episode.oracle.tokens))


@EACH
def test_without_mounts_packed_equals_the_library_on_each_thread(name: str) -> None:
    both = pair(VARIANTS[name]())
    for seed in range(3):
        episode = random_episode(seed, size=SIZE, features=FORK_ONLY)
        assert_same(run_packed(both.backbone, episode), run_library(both.plain, episode.oracle.tokens))


@pytest.mark.parametrize("fault", [torch.zeros_like, torch.Tensor.detach], ids=["no state", "state detached"])
def test_a_child_starts_from_its_parents_state(monkeypatch: pytest.MonkeyPatch, fault: object) -> None:
    both, episode = pair(tiny_granite()), random_episode(0, size=SIZE, features=FORK_ONLY)
    expected = run_packed(both.backbone, episode)
    monkeypatch.setattr(recurrent, "hand_over", fault)
    with pytest.raises(AssertionError, match="is off by"):
        assert_same(run_packed(both.backbone, episode), expected)
