"""Moments in 8 bits: the optimizer of a library, as our configuration, schedule and saves know it."""

from __future__ import annotations

import importlib.util
from pathlib import Path

import pytest
import torch

from octopus.core.errors import ConfigError
from octopus.train import optimizer as optimizers
from octopus.train import saves
from octopus.train.config import OptimizerConfig
from octopus.train.optimizer import new_optimizer, set_learning_rate

CONFIG = OptimizerConfig(learning_rate=1e-2, weight_decay=0.1, moments="8bit")
Made = tuple[torch.nn.Module, torch.optim.Optimizer]


def make(seed: int) -> Made:
    """One weight of the size from which moments are kept in 8 bits, one below it."""
    torch.manual_seed(seed)
    model = torch.nn.Sequential(torch.nn.Linear(64, 64, bias=False), torch.nn.Linear(64, 4, bias=False)).bfloat16()
    return model, new_optimizer(model, CONFIG)


def learn(made: Made, steps: int) -> list[float]:
    model, optimizer = made
    losses = []
    for step in range(steps):
        set_learning_rate(optimizer, CONFIG, step=step + 1, steps=steps)
        optimizer.zero_grad()
        x = torch.randn(32, 64, generator=torch.Generator().manual_seed(step)).bfloat16()
        loss = (model(x) - x[:, :4]).float().square().mean()
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    return losses


def test_it_learns_and_a_resumed_run_gives_the_same_bits(tmp_path: Path) -> None:
    """Catches: moments that are saved as floats, scales lost, a sign lost, a learning rate that no longer changes."""
    made = make(0)
    losses = learn(made, 20)
    assert losses[-1] < losses[0] / 2
    state = made[1].state[made[0][0].weight]
    assert state["exp_avg"].codes.dtype == torch.uint8 and made[0][0].weight.dtype == torch.bfloat16
    found = saves.check(saves.save(tmp_path, step=20, model=made[0], optimizer=made[1], run="a"))
    straight = learn(made, 3)
    resumed = make(1)
    saves.load(found, model=resumed[0], optimizer=resumed[1], run="a")
    assert learn(resumed, 3) == straight
    assert torch.equal(resumed[0][0].weight, made[0][0].weight)


def test_the_learning_rate_is_changed_in_place() -> None:
    """Catches: a number in its place, which the compiled step refuses."""
    _, optimizer = make(0)
    rate = optimizer.param_groups[0]["lr"]
    set_learning_rate(optimizer, CONFIG, step=1, steps=4)
    assert optimizer.param_groups[0]["lr"] is rate and rate.item() == pytest.approx(1e-2)


def test_without_the_package_it_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(optimizers, "find_spec", lambda name: None)
    with pytest.raises(ConfigError, match=r"needs the package torchao; install octopus-kv\[8bit\]"):
        make(0)
    assert importlib.util.find_spec("torchao") is not None
