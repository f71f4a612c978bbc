"""Without mounts, packed pass and executor give every path the logits of the unmodified library model on it alone.

Catches whatever our forward and our own executor would get wrong together: a norm, a gate, a rotation, a layer order.
"""

import pytest
import torch
from comparison import leaf_paths, pair
from random_graphs import FORK_ONLY, lowered, random_episode
from tiny_models import EVERY_FAMILY, HYBRIDS

from octopus.verify.executor import execute

TOLERANCE = 1e-5  # float32; of the largest logit, which is about 10: both sides are equally far from float64


@pytest.mark.parametrize(
    "make", [pytest.param(make, marks=pytest.mark.slow if make in HYBRIDS else ()) for make in EVERY_FAMILY]
)
@torch.no_grad()
def test_packed_and_executor_equal_the_library(make) -> None:
    both = pair(make(dtype=torch.float32))
    for seed in range(20):
        episode = random_episode(seed, size=100 if seed % 10 == 9 else 20, features=FORK_ONLY)
        tokens = episode.oracle.tokens
        plan, rows_I = lowered(episode)
        packed_IV = both.backbone.logits(both.backbone.packed(plan))[rows_I]
        executed_IV = execute(both.plain, tokens)[1]
        for path in leaf_paths(tokens):
            values = torch.tensor([[tokens[i].value for i in path]])
            alone_NV = both.plain(input_ids=values, use_cache=False).logits[0]
            for found_IV in (packed_IV, executed_IV):
                error = (found_IV[path] - alone_NV).abs().max() / alone_NV.abs().max()
                assert error <= TOLERANCE, seed
