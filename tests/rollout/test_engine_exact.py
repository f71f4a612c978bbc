"""The engine's paged, batched, rewinding rollouts give the very log-probabilities of the packed pass."""

from __future__ import annotations

from functools import partial

import pytest
from random_rollouts import RandomRollout, packed_log_probabilities, tiny_engine
from tiny_models import rope_parameters, tiny_gemma3, tiny_llama, tiny_qwen3, tiny_qwen35

YARN = rope_parameters(rope_type="yarn", factor=4.0, original_max_position_embeddings=512)
BUILDERS = {
    "llama": tiny_llama,
    "qwen35": tiny_qwen35,
    "qwen3": partial(tiny_qwen3, rope_parameters=YARN),
    "gemma3": tiny_gemma3,
}
SEEDS = {"llama": 12, "qwen35": 12, "qwen3": 2, "gemma3": 4}
ROOMY = {"pages": 400, "state_slots": 200}
TIGHT = {"pages": 24, "state_slots": 9}


@pytest.mark.parametrize("pool", [ROOMY, TIGHT], ids=["roomy", "tight"])
@pytest.mark.parametrize(("family", "seed"), [(name, seed) for name, seeds in SEEDS.items() for seed in range(seeds)])
def test_sampled_log_probabilities_equal_the_packed_pass(family: str, pool: dict[str, int], seed: int) -> None:
    """Catches: a state from the wrong place after a rewind or fork, a page given back too early, a stale hidden state.

    Also an attention factor or a window that decoding leaves out, and a stretch that runs before its mount's source:
    the store begins as NaN, so an unwritten slot shows at once.
    """
    engine = tiny_engine(BUILDERS[family](), batch_tokens=7, **pool)
    rollout = RandomRollout(engine, seed)
    rollout.run(60)
    recorded = rollout.recorded()
    assert len(recorded) > 5
    segments = [rollout.segments[index] for index in sorted(rollout.segments)]
    again = packed_log_probabilities(engine.backbone, segments, list(recorded))
    assert list(recorded.values()) == pytest.approx(again, abs=1e-10, rel=0)
