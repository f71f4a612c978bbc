"""Activation checkpointing keeps what attention gave and makes the rest again."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from hand_made import TREE, plan_of
from tiny_models import tiny_gemma3, tiny_qwen35

from octopus.attention.libraries import ops
from octopus.models import binding
from octopus.models.backbone import Backbone
from octopus.models.recomputing import recompute_layers


class Doubling:
    """In place of a library's pass: gives queries doubled, and counts how often."""

    def __init__(self) -> None:
        self.calls = 0

    def forward(self, q: Any, k: Any, v: Any, scale: float) -> Any:
        self.calls += 1
        return 2 * q, q.new_zeros(q.shape[:2])

    def backward(self, d_out: Any, q: Any, k: Any, v: Any, out: Any, lse: Any, scale: float) -> Any:
        assert torch.equal(out, 2 * q), "what was kept belongs to what is made again"
        return 2 * d_out, torch.zeros_like(k), torch.zeros_like(v)


def gradients(model: Any, backend: str) -> dict[str, torch.Tensor]:
    model.zero_grad(set_to_none=True)
    Backbone(model).packed(plan_of(TREE), backend=backend).square().sum().backward()
    return {name: weight.grad for name, weight in model.named_parameters() if weight.grad is not None}


@pytest.mark.parametrize("build", [tiny_qwen35, tiny_gemma3])
def test_gradients_are_the_same_bits(build: Any) -> None:
    """Catches: a layer that is made again from other values, or whose gradient is lost."""
    plain, again = build(), build()
    wanted = gradients(plain, "sliced")
    recompute_layers(again)
    recompute_layers(again)
    found = gradients(again, "sliced")
    assert found.keys() == wanted.keys()
    assert all(torch.equal(found[name], wanted[name]) for name in wanted)


def test_attention_is_kept_and_the_rest_is_made_again(monkeypatch: pytest.MonkeyPatch) -> None:
    """Catches: attention that is computed twice; layers that keep all they made."""
    made, units = Doubling(), []
    monkeypatch.setattr(ops, "_pass", lambda *_: made)
    monkeypatch.setattr("octopus.attention.backends.unavailable", lambda name: None)
    unit = binding._gated_unit
    monkeypatch.setattr(binding, "_gated_unit", lambda *inputs: (units.append(1), unit(*inputs))[1])
    model = tiny_qwen35(layers=4)
    attending = sum(kind == "full_attention" for kind in model.config.layer_types)
    wanted = gradients(model, "triton")
    assert (made.calls, len(units)) == (attending, 4)
    recompute_layers(model)
    made.calls, units[:] = 0, []
    found = gradients(model, "triton")
    assert (made.calls, len(units)) == (attending, 8)
    assert all(torch.equal(found[name], wanted[name]) for name in wanted)


def test_without_gradients_nothing_is_kept_or_made_again(monkeypatch: pytest.MonkeyPatch) -> None:
    model = tiny_qwen35()
    recompute_layers(model)
    monkeypatch.setattr("octopus.models.recomputing.checkpoint", None)  # Would raise if it were called.
    with torch.no_grad():
        Backbone(model).packed(plan_of(TREE))
