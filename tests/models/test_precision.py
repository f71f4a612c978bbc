"""A float64 model computes in float64 throughout: packed with gradients, checkpointed, and paged."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from hand_made import TREE, WITH_MOUNT, Replay, plan_of
from tiny_models import EVERY_FAMILY, checkpointed
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

from octopus.models.backbone import Backbone

FAMILIES = pytest.mark.parametrize("build", EVERY_FAMILY)
NARROW = {torch.float32, torch.float16, torch.bfloat16}


class NarrowTensors(TorchDispatchMode):
    """Collects the operators that read or write a floating-point tensor narrower than float64."""

    def __init__(self) -> None:
        super().__init__()
        self.operators: set[str] = set()
        self.calls = 0

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        result = func(*args, **(kwargs or {}))
        tensors = [x for x in tree_leaves((args, kwargs, result)) if isinstance(x, torch.Tensor)]
        self.calls += 1
        if any(x.dtype in NARROW for x in tensors):
            self.operators.add(str(func))
        return result


@pytest.mark.parametrize("prepare", [lambda model: model, checkpointed], ids=["plain", "checkpointed"])
@pytest.mark.parametrize("backend", ["sliced", "reference"])
@FAMILIES
def test_no_narrow_tensor_in_a_packed_pass(build: Callable, backend: str, prepare: Callable) -> None:
    backbone = Backbone(prepare(build()))
    with NarrowTensors() as seen:
        logits = backbone.logits(backbone.packed(plan_of(WITH_MOUNT), backend=backend))
        forward_calls = seen.calls
        logits.log_softmax(-1)[:, 0].sum().backward()
    assert seen.operators == set()
    assert seen.calls > 1.5 * forward_calls


@FAMILIES
def test_no_narrow_tensor_in_a_step(build: Callable) -> None:
    replay = Replay(Backbone(build()), plan_of(TREE))
    with NarrowTensors() as seen:
        replay.step((0, 5))
        replay.step((5, 9), (23, 24))
    assert seen.operators == set()


def test_the_test_sees_a_narrow_tensor() -> None:
    with NarrowTensors() as seen:
        torch.ones(2, dtype=torch.float64).float()
    assert seen.operators
