"""Layers by flash-linear-attention, its functions replaced by plain ones: how a pack is dealt to them."""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from types import SimpleNamespace

import pytest
import torch
from fla_stand_ins import kernels
from hand_made import TREE, Branch, plan_of
from tiny_models import tiny_granite, tiny_qwen3_next, tiny_qwen35

from octopus.core.errors import BackendUnavailable
from octopus.models.backbone import Backbone
from octopus.models.layers import choosing
from octopus.models.layers.fla import FlaLayers
from octopus.models.layers.reordering import reordered

# Levels whose runs do not lie together in the row, runs shorter than the convolution, and a run cut by a fork.
NESTED = (
    Branch(length=9),
    Branch(length=2, parent=0, fork=4),
    Branch(length=6, parent=0, fork=4),
    Branch(length=1, parent=1, fork=2),
    Branch(length=5, parent=1, fork=1),
    Branch(length=3, parent=2, fork=6),
    Branch(length=4, parent=0, fork=9),
)
CPU = torch.device("cpu")


@pytest.mark.parametrize(
    ("build", "branches", "convolution"),
    [
        (tiny_qwen35, TREE, "linear_attn"),
        (tiny_qwen35, NESTED, "linear_attn"),
        (tiny_qwen3_next, NESTED, "linear_attn"),
        (tiny_granite, NESTED, "mamba"),
    ],
    ids=["tree", "nested", "sorted", "mamba"],
)
def test_values_and_gradients_are_those_of_plain_layers(
    build: Callable, branches: Sequence[Branch], convolution: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Catches: another run's state or columns, columns in the wrong order, rows laid back to the wrong places.

    And a Mamba-2 layer, which the library is not asked for, given to its delta rule.
    """
    plan = plan_of(branches)
    found = []
    for layers in ("plain", "fla"):
        model = build(dtype=torch.float64)
        monkeypatch.setattr(
            "octopus.models.backbone.layers_named",
            lambda name, *_: FlaLayers(kernels()) if name == "fla" else choosing.layers_named(name, *_),
        )
        hidden_TC = Backbone(model, layers=layers).packed(plan)
        weights = torch.linspace(-1, 1, hidden_TC.numel(), dtype=torch.float64).view_as(hidden_TC)
        (hidden_TC * weights).sum().backward()
        gradients = {name: weight.grad for name, weight in model.named_parameters()}
        found.append({"hidden": hidden_TC.detach()} | gradients)
    plain, fla = found
    for name, wanted in plain.items():
        assert (fla[name] - wanted).norm() <= 1e-11 * wanted.norm(), name
    assert plain[f"model.layers.0.{convolution}.conv1d.weight"].norm() > 0


def test_rows_that_lie_level_by_level_are_not_moved() -> None:
    """Catches: a copy of all columns that changes nothing."""
    flat, nested = (FlaLayers(kernels()).recurrence(plan_of(tree), 4, CPU) for tree in (NESTED[:3], NESTED))
    assert flat.order_T is None
    assert nested.order_T is not None and sorted(nested.order_T.tolist()) == list(range(len(nested.order_T)))


def test_a_gradient_is_laid_back() -> None:
    x_T = torch.arange(4.0, dtype=torch.float64, requires_grad=True)
    order_T = torch.tensor([2, 0, 3, 1])
    assert torch.autograd.gradcheck(lambda x: reordered(x, order_T, order_T.argsort()).square(), x_T)
    assert reordered(x_T, order_T, order_T.argsort()).tolist() == [2, 0, 3, 1]


@pytest.mark.parametrize(
    ("name", "why"), [("fla", "bfloat16 and float16 on a GPU"), ("fast", "there are none of that name")]
)
def test_layers_that_cannot_be_had_are_refused_with_the_reason(name: str, why: str) -> None:
    """Catches: plain layers in place of those that were asked for."""
    with pytest.raises(BackendUnavailable, match=f"(?s){why}.*plain runs everywhere"):
        Backbone(tiny_qwen35(), layers=name)


def test_without_a_gpu_layers_are_plain() -> None:
    assert Backbone(tiny_qwen35()).layers == choosing.default_layers(CPU, torch.bfloat16) == "plain"


def test_on_a_gpu_what_is_missing_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    """Catches: layers whose gradients the library refuses, found out in the first backward pass."""
    cuda, there = torch.device("cuda"), {"fla"}
    monkeypatch.setattr(choosing, "find_spec", lambda name: name in there or None)
    monkeypatch.setattr(choosing, "_is_wrong_on_hopper", lambda device: True)
    assert "tilelang" in str(choosing.unavailable("fla", cuda, torch.bfloat16))
    there.add("tilelang")
    assert choosing.unavailable("fla", cuda, torch.bfloat16) is None
    there.remove("fla")
    assert "flash-linear-attention" in str(choosing.unavailable("fla", cuda, torch.bfloat16))
    assert choosing.default_layers(cuda, torch.bfloat16) == "plain"


@pytest.mark.parametrize(
    ("version", "generation", "wrong"),
    [("3.6.0", 9, True), ("3.6.0+git1a2b", 9, True), ("3.7.1", 9, False), ("3.3.1", 9, False), ("3.6.0", 10, False)],
)
def test_the_tritons_that_are_wrong_on_hopper(
    version: str, generation: int, wrong: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Catches: a bound that is off by one, a version with a suffix that cannot be read."""
    monkeypatch.setitem(sys.modules, "triton", SimpleNamespace(__version__=version))
    monkeypatch.setattr(torch.cuda, "get_device_capability", lambda device: (generation, 0))
    assert choosing._is_wrong_on_hopper(torch.device("cuda")) == wrong
