"""Rollout steps by our paged kernels against plain torch, in Triton's interpreter; prints a case's largest difference.

A program of its own, as the interpreter is chosen when Triton is imported. First attention of steps alone, windowed
ones too, then whole models over stores.
"""

from __future__ import annotations

import os

os.environ["TRITON_INTERPRET"] = "1"

from collections.abc import Callable

import torch
from hand_made import WITH_MOUNT, Replay, plan_of
from numeric import random_inputs
from test_paged import PAGE, ROPE, SCALE, played, rollout
from tiny_models import EVERY_FAMILY

from octopus.attention.dag.steps import step_pass
from octopus.attention.paged import attend_paged
from octopus.attention.plan import lower
from octopus.models.backbone import Backbone

CPU = torch.device("cpu")
# Chunks of the trunk, then branches side by side; one begins in the step that computes the last token it mounts.
SPANS = (
    ((0, 5),), ((5, 9),), ((9, 12), (23, 25)), ((12, 15), (16, 17), (25, 26)), ((17, 18), (15, 16), (26, 27)),
    ((18, 22),), ((22, 23),),
)  # fmt: skip


def steps(seed: int, window: int | None) -> tuple[int, int, float]:
    """Steps that the kernels computed, steps that they left to torch, and the largest difference."""
    made = rollout(seed)
    plan = lower(made.graph.segments)
    inputs = tuple(x.float() for x in random_inputs(plan.length, kv_heads=2, group=2, head_dim=16, seed=seed))
    computed, left, worst = 0, 0, 0.0
    batches = zip(played(made, plan, inputs, window), made.steps, strict=True)
    for (_, q_HTD, keys_SGD, values_SGD, index), (_, step) in batches:
        one = step_pass(step, window=window, rope=ROPE, heads=4, kv_heads=2, head_dim=16, device=CPU)
        if one is None:
            left += 1
            continue
        computed += 1
        expected = attend_paged(q_HTD, keys_SGD, values_SGD, index=index, rope=ROPE, scale=SCALE)
        got, _ = one.attend(q_HTD, keys_SGD, values_SGD, scale=SCALE)
        worst = max(worst, float((got - expected).abs().max()))
    return computed, left, worst


def model(build: Callable) -> float:
    """The largest difference of hidden states between a model's steps over a store by either backend."""
    found = []
    for backend in ("torch", "triton"):
        replay = Replay(Backbone(build(dtype=torch.float32)), plan_of(WITH_MOUNT))
        replay.backbone.paged_backend = backend  # Not by its name: that is refused without a GPU.
        for spans in SPANS:
            replay.step(*spans)
        found.append(replay.hidden_TC())
    assert not torch.equal(*found)  # Two ways of computing were compared.
    return float((found[0] - found[1]).abs().max())


if __name__ == "__main__":
    for seed in range(3):
        for window in (None, 1, PAGE + 1):
            print("steps", seed, window or 0, *steps(seed, window), flush=True)
    torch.set_grad_enabled(False)
    for build in EVERY_FAMILY:
        print("model", build.__name__, 0, 1, 0, model(build), flush=True)
