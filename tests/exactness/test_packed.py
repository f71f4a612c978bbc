"""One packed pass equals the same episode computed another way, in float64: forward to 1e-10, gradients to 1e-9.

Catches any wrong visibility, position, window, rotation, head mapping, state hand-over, convolution tail, target or
gradient, in every family; a detour over float32; and random graphs that no longer reach what they should.
"""

import contextlib
from collections.abc import Iterator

import pytest
import torch
from comparison import OnlyFloat64, Pair, assert_same, pair, run_alone, run_executor, run_packed
from graph_features import FEATURES, REFUSALS, features_of
from random_graphs import FORK_ONLY, RandomEpisode, random_episode
from tiny_models import rope_parameters, tiny_gemma3, tiny_llama, tiny_qwen3, tiny_qwen35

# Query heads, key/value heads, head dimension.
SHAPES = {"1:1": (2, 2, 32), "2:1": (4, 2, 32), "7:1": (7, 1, 32), "wide": (2, 1, 256)}
# A rotary type and a window for each shape.
ROPES = {
    "1:1": {
        "rope_type": "llama3",
        "factor": 8.0,
        "low_freq_factor": 1.0,
        "high_freq_factor": 4.0,
        "original_max_position_embeddings": 64,
    },
    "2:1": {"rope_type": "yarn", "factor": 4.0, "original_max_position_embeddings": 512},
    "7:1": {"rope_type": "linear", "factor": 4.0},
    "wide": {},
}
WINDOWS = {"1:1": 1, "2:1": 4, "7:1": 7, "wide": 12}
CHUNKS, GRAPHS_PER_CHUNK, SIZE = 12, 25, 15
# The first two families see all graphs of all chunks, the others the last graphs of one chunk a shape.
FAMILIES = {"llama": CHUNKS, "qwen3.5": CHUNKS, "qwen3": len(SHAPES), "gemma-3": len(SHAPES)}
LAST = 8
LONG_SIZE, LONG_SEEDS = 100, {0: 1004, 5: 1005, 10: 1002}  # by chunk; with segments of 63, 64 and 65 tokens


def models(family: str, shape: str) -> Pair:
    heads, kv_heads, head_dim = SHAPES[shape]
    common = {"heads": heads, "kv_heads": kv_heads, "head_dim": head_dim}
    rope = rope_parameters(**ROPES[shape])
    # The library wants the hidden size to be a multiple of the heads, though it needs it nowhere.
    hidden = {"hidden_size": 56 if heads == 7 else 64}
    if family == "llama":
        return pair(tiny_llama(**common, **hidden))
    if family == "qwen3":
        return pair(tiny_qwen3(**common, rope_parameters=rope))
    if family == "gemma-3":
        ropes = {"full_attention": rope, "sliding_attention": rope_parameters(rope_theta=30.0)}
        return pair(tiny_gemma3(**common, **hidden, layers=2, window=WINDOWS[shape], rope_parameters=ropes))
    layers = ["full_attention", "linear_attention", "full_attention"]
    return pair(tiny_qwen35(**common, layers=len(layers), layer_types=layers))


def episodes(chunk: int) -> Iterator[RandomEpisode]:
    """The graphs of a chunk; some chunks have a long one at the end."""
    for seed in range(chunk * GRAPHS_PER_CHUNK, (chunk + 1) * GRAPHS_PER_CHUNK):
        yield random_episode(seed, size=SIZE)
    if chunk in LONG_SEEDS:
        yield random_episode(LONG_SEEDS[chunk], size=LONG_SIZE)


@pytest.mark.parametrize(
    ("family", "chunk"), [(family, chunk) for family, chunks in FAMILIES.items() for chunk in range(chunks)]
)
def test_packed_equals_token_by_token(family: str, chunk: int) -> None:
    both = models(family, list(SHAPES)[chunk % len(SHAPES)])
    graphs = list(episodes(chunk))
    for i, episode in enumerate(graphs if FAMILIES[family] == CHUNKS else graphs[-LAST:]):
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
    for seed in range(10 if FAMILIES[family] == CHUNKS else 3):
        episode = random_episode(seed, size=SIZE, features=FORK_ONLY)
        assert_same(run_packed(both.backbone, episode), run_alone(both.backbone, episode.oracle.tokens))


def test_a_part_of_the_head_turned_with_an_attention_factor() -> None:
    """Catches: YaRN's factor on dimensions that do not turn, where mounts are seen shifted."""
    yarn = ROPES["2:1"] | {"partial_rotary_factor": 0.25, "mrope_section": [2, 1, 1]}
    both = pair(tiny_qwen35(layers=2, rope_parameters=rope_parameters(**yarn)))
    assert both.backbone.rotaries[1].attention_factor > 1.1
    for episode in list(episodes(1))[:5]:
        assert_same(run_packed(both.backbone, episode), run_executor(both.plain, episode.oracle.tokens))


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
