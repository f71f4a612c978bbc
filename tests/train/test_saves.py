"""Saves are whole or absent, and resume exactly.

Catches: weights, optimiser moments, the step count or random generators that are not restored; a half-written save that
is found; a save that is overwritten; an order of saves by text instead of number.
"""

from pathlib import Path

import pytest
import torch
from scripted import group
from tiny_models import tiny_qwen35

from octopus.core.errors import OctopusError
from octopus.models.backbone import Backbone
from octopus.train import saves
from octopus.train.config import LossConfig, StepConfig
from octopus.train.packing import pack
from octopus.train.step import train_step


def make(seed: int) -> tuple[Backbone, torch.optim.Optimizer]:
    backbone = Backbone(tiny_qwen35(dtype=torch.float32, seed=seed))
    return backbone, torch.optim.AdamW(backbone.model.parameters(), lr=1e-3)


def run(backbone: Backbone, optimizer: torch.optim.Optimizer, steps: int) -> list[float]:
    packed = pack([[episode] for episode in group()])
    packed.advantages_N[:] = 1.0
    packed.sampled_log_probabilities_N[:] = -5.0
    wide = LossConfig(clip_high=1e9)
    return [train_step(backbone, [packed], optimizer, loss=wide, step=StepConfig()).loss for _ in range(steps)]


def bits(model: torch.nn.Module) -> dict[str, bytes]:
    return {name: tensor.detach().numpy().tobytes() for name, tensor in model.state_dict().items()}


def test_a_resumed_run_gives_the_same_bits(tmp_path: Path) -> None:
    backbone, optimizer = make(seed=0)
    run(backbone, optimizer, 2)
    path = saves.save(tmp_path, step=2, model=backbone.model, optimizer=optimizer)
    noise = torch.rand(3)
    straight = run(backbone, optimizer, 2)

    resumed, fresh_optimizer = make(seed=1)
    torch.manual_seed(99)
    assert saves.load(path, model=resumed.model, optimizer=fresh_optimizer) == 2
    assert torch.equal(torch.rand(3), noise)
    assert run(resumed, fresh_optimizer, 2) == straight
    assert bits(resumed.model) == bits(backbone.model)


def test_tied_weights_stay_tied(tmp_path: Path) -> None:
    backbone, optimizer = make(seed=0)
    saves.load(
        saves.save(tmp_path, step=1, model=backbone.model, optimizer=optimizer),
        model=backbone.model,
        optimizer=optimizer,
    )
    assert backbone.model.lm_head.weight is backbone.model.get_input_embeddings().weight


def test_a_save_that_fails_leaves_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    backbone, optimizer = make(seed=0)

    def full_disk(*_: object) -> None:
        raise OSError("no space left")

    monkeypatch.setattr(torch, "save", full_disk)
    with pytest.raises(OSError, match="no space left"):
        saves.save(tmp_path, step=1, model=backbone.model, optimizer=optimizer)
    assert list(tmp_path.iterdir()) == []
    assert saves.newest(tmp_path) is None


def test_a_save_is_never_overwritten(tmp_path: Path) -> None:
    backbone, optimizer = make(seed=0)
    saves.save(tmp_path, step=1, model=backbone.model, optimizer=optimizer)
    with pytest.raises(OctopusError, match=r"step-000001 exists; a save is never overwritten$"):
        saves.save(tmp_path, step=1, model=backbone.model, optimizer=optimizer)


def test_the_newest_save_has_the_highest_step(tmp_path: Path) -> None:
    for step in (999_999, 1_000_000, 2):
        (tmp_path / f"step-{step:06d}").mkdir()
    (tmp_path / ".saving-abandoned").mkdir()
    newest = saves.newest(tmp_path)
    assert newest is not None and newest.name == "step-1000000"
