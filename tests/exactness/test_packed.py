"""One packed pass equals the same episode computed another way, in float64: forward to 1e-10, gradients to 1e-9.

Catches any wrong visibility, position, head mapping, state hand-over, convolution tail, target or gradient, in both
families; a detour over float32; and random graphs that no longer reach what they should.
"""

import contextlib
from collections.abc import Iterator

import pytest
import torch
from comparison import OnlyFloat64, Pair, assert_same, pair, run_alone, run_executor, run_packed
from graph_features import FEATURES, REFUSALS, features_of
from random_graphs import FORK_ONLY, RandomEpisode, random_episode
from tiny_models import tiny_llama, tiny_qwen35

# Query heads, key/value heads, head dimension.
SHAPES = {"1:1": (2, 2, 32), "2:1": (4, 2, 32), "7:1": (7, 1, 32), "wide": (2, 1, 256)}
FAMILIES = ("llama", "qwen3.5")
CHUNKS, GRAPHS_PER_CHUNK, SIZE = 12, 25, 15
LONG_SIZE, LONG_SEEDS = 100, {0: 1004, 5: 1005, 10: 1002}  # by chunk; with segments of 63, 64 and 65 tokens


def models(family: str, shape: str) -> Pair:
    heads, kv_heads, head_dim = SHAPES[shape]
    common = {"heads": heads, "kv_heads": kv_heads, "head_dim": head_dim}
    if family == "llama":
        # The library wants the hidden size to be a multiple of the heads, though it needs it nowhere.
        return pair(tiny_llama(**common, hidden_size=56 if heads == 7 else 64))
    layers = ["full_attention", "linear_attention", "full_attention"]
    return pair(tiny_qwen35(**common, layers=len(layers), layer_types=layers))


def episodes(chunk: int) -> Iterator[RandomEpisode]:
    """The graphs of a chunk; some chunks have a long one at the end."""
    for seed in range(chunk * GRAPHS_PER_CHUNK, (chunk + 1) * GRAPHS_PER_CHUNK):
        yield random_episode(seed, size=SIZE)
    if chunk in LONG_SEEDS:
        yield random_episode(LONG_SEEDS[chunk], size=LONG_SIZE)


@pytest.mark.parametrize("family", FAMILIES)
@pytest.mark.parametrize("chunk", range(CHUNKS))
def test_packed_equals_token_by_token(family: str, chunk: int) -> None:
    both = models(family, list(SHAPES)[chunk % len(SHAPES)])
    for i, episode in enumerate(episodes(chunk)):
        with OnlyFloat64() if i == 0 else contextlib.nullcontext():
            found = run_packed(both.backbone, episode)
        expected = run_executor(both.plain, episode.oracle.tokens)
        assert_same(found, expected)
        if i == 0:
            assert_same(run_packed(both.backbone, episode, backend="reference"), expected)


@pytest.mark.parametrize("family", FAMILIES)
@pytest.mark.parametrize("shape", SHAPES)
def test_without_mounts_packed_equals_each_thread_alone(family: str, shape: str) -> None:
    both = models(family, shape)
    for seed in range(10):
        episode = random_episode(seed, size=SIZE, features=FORK_ONLY)
        assert_same(run_packed(both.backbone, episode), run_alone(both.backbone, episode.oracle.tokens))


def test_a_detour_over_float32_is_seen() -> None:
    both = pair(tiny_llama(dtype=torch.float32))
    with pytest.raises(AssertionError, match=r"touches torch\.float32"), OnlyFloat64():
        run_packed(both.backbone, random_episode(0, size=SIZE))


def test_these_graphs_reach_everything() -> None:
    covered: set[str] = set()
    for chunk in range(CHUNKS):
        for episode in episodes(chunk):
            covered |= features_of(episode)
    assert covered >= FEATURES - REFUSALS
