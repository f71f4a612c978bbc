"""Saves resume exactly, on libraries that keep no code in files.

Catches: weights, optimiser moments, the step count or random generators that are not restored; an optimiser's state
that hangs on the order of parameters; moments that are rounded to the type of the weights; a save that is overwritten
or is loaded into another model or run; an order of saves by text instead of number.
"""

import json
import random
import re
from pathlib import Path

import numpy as np
import pytest
import torch
from safetensors.torch import load_file
from scripted import group
from tiny_models import tiny_qwen35

from octopus import train
from octopus.core.errors import ConfigError, OctopusError
from octopus.models.backbone import Backbone
from octopus.train import saves
from octopus.train.adapter import add_adapter
from octopus.train.config import AdapterConfig, LossConfig, StepConfig
from octopus.train.packing import pack
from octopus.train.step import train_step

Made = tuple[torch.nn.Module, torch.optim.Optimizer]


def make(seed: int) -> tuple[Backbone, torch.optim.Optimizer]:
    backbone = Backbone(tiny_qwen35(dtype=torch.float32, seed=seed))
    return backbone, torch.optim.AdamW(backbone.model.parameters(), lr=1e-3)


def run(backbone: Backbone, optimizer: torch.optim.Optimizer, steps: int) -> list[float]:
    packed = pack([[episode] for episode in group()])
    packed.advantages_N[:] = 1.0
    packed.sampled_log_probabilities_N[:] = -5.0
    wide = LossConfig(clip_high=1e9)
    return [train_step(backbone, [packed], optimizer, loss=wide, step=StepConfig()).loss for _ in range(steps)]


def small(seed: int, *, reverse: bool = False, dtype: torch.dtype = torch.float32) -> Made:
    """A model with dropout and a buffer, and an optimizer with two groups."""
    torch.manual_seed(seed)
    model = torch.nn.Sequential(
        torch.nn.Linear(6, 5), torch.nn.BatchNorm1d(5), torch.nn.Dropout(0.5), torch.nn.Linear(5, 3)
    ).to(dtype)
    groups = [list(model[0].parameters()) + list(model[1].parameters()), list(model[3].parameters())]
    if reverse:
        groups = [parameters[::-1] for parameters in groups]
    return model, torch.optim.AdamW(
        [{"params": groups[0]}, {"params": groups[1], "weight_decay": 0.5}], lr=1e-2, betas=(0.8, 0.9)
    )


def learn(made: Made, steps: int) -> list[float]:
    model, optimizer = made
    losses = []
    for _ in range(steps):
        optimizer.zero_grad()
        noise = random.random() + float(np.random.random())  # noqa: NPY002  as users' code does
        loss = model(torch.randn(4, 6).to(model[0].weight.dtype)).square().sum() * noise
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    return losses


def save(folder: Path, made: Made, step: int = 2, **options: int) -> saves.Save:
    model, optimizer = made
    return saves.check(saves.save(folder, step=step, model=model, optimizer=optimizer, run="a", **options))


def load(found: saves.Save, made: Made, run: str = "a") -> int:
    model, optimizer = made
    return saves.load(found, model=model, optimizer=optimizer, run=run)


def bits(model: torch.nn.Module) -> dict[str, bytes]:
    return {
        name: tensor.detach().contiguous().view(torch.uint8).numpy().tobytes() if tensor.ndim else tensor.item()
        for name, tensor in model.state_dict().items()
    }


def test_a_resumed_run_gives_the_same_bits(tmp_path: Path) -> None:
    backbone, optimizer = make(seed=0)
    run(backbone, optimizer, 2)
    found = save(tmp_path, (backbone.model, optimizer))
    straight = run(backbone, optimizer, 2)
    resumed, fresh_optimizer = make(seed=1)
    assert load(found, (resumed.model, fresh_optimizer)) == 2
    assert run(resumed, fresh_optimizer, 2) == straight
    assert bits(resumed.model) == bits(backbone.model)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16])
@pytest.mark.parametrize("reverse", [False, True])
def test_dropout_noise_and_groups_resume_whatever_the_order(
    dtype: torch.dtype, reverse: bool, tmp_path: Path
) -> None:
    """Row 53 of public bugs: generators restored and seeded again. Reversed parameters catch a state by index."""
    made = small(0, dtype=dtype)
    learn(made, 3)
    made[1].param_groups[1]["lr"] = 0.5  # as a schedule does
    found = save(tmp_path, made)
    straight = learn(made, 3)
    resumed = small(1, reverse=reverse, dtype=dtype)
    for number in (1, 2):  # Restoring twice is like once.
        random.seed(number)
        np.random.seed(number)  # noqa: NPY002
        load(found, resumed)
    assert resumed[1].param_groups[0]["betas"] == (0.8, 0.9)
    assert learn(resumed, 3) == straight
    assert bits(resumed[0]) == bits(made[0])


def test_moments_keep_their_own_type(tmp_path: Path) -> None:
    made = small(0, dtype=torch.bfloat16)
    learn(made, 1)
    weight = made[0][0].weight
    precise = torch.rand_like(weight, dtype=torch.float32)
    made[1].state[weight]["exp_avg"] = precise
    made[1].state[weight]["plain"] = 7
    found = save(tmp_path, made)
    resumed = small(1, dtype=torch.bfloat16)
    load(found, resumed)
    state = resumed[1].state[resumed[0][0].weight]
    assert state["exp_avg"].dtype == torch.float32 and torch.equal(state["exp_avg"], precise)
    assert state["plain"] == 7


def test_a_save_before_the_first_step_resumes(tmp_path: Path) -> None:
    made = small(0)
    found = save(tmp_path, made, step=0)
    straight, resumed = learn(made, 2), small(1)
    learn(resumed, 1)
    assert load(found, resumed) == 0
    assert learn(resumed, 2) == straight


def test_generators_may_be_those_of_an_earlier_moment(tmp_path: Path) -> None:
    """Catches: an abandoned step whose noise is left in the save."""
    made = small(0)
    before = saves.generators()
    straight = torch.rand(3)
    saves.save(tmp_path, step=1, model=made[0], optimizer=made[1], run="a", generators=before)
    load(saves.check(tmp_path / "step-000001"), made)
    assert torch.equal(torch.rand(3), straight)


def test_large_models_are_saved_in_files_of_bounded_size(tmp_path: Path) -> None:
    made = small(0)
    learn(made, 1)
    whole, cut = save(tmp_path / "whole", made), save(tmp_path / "cut", made, shard_bytes=100)
    shards = sorted(name for name in cut.files if name.startswith("model"))
    count = len(shards)
    assert count > 3 and shards[0] == f"model-00001-of-{count:05d}.safetensors"
    for name in shards:
        tensors = load_file(cut.path / name).values()
        assert len(tensors) == 1 or sum(tensor.nbytes for tensor in tensors) <= 100
    assert "model.safetensors" in whole.files
    straight, resumed = learn(made, 2), small(1)
    load(cut, resumed)
    assert learn(resumed, 2) == straight


def test_tied_weights_stay_tied(tmp_path: Path) -> None:
    backbone, optimizer = make(seed=0)
    load(save(tmp_path, (backbone.model, optimizer)), (backbone.model, optimizer))
    assert backbone.model.lm_head.weight is backbone.model.get_input_embeddings().weight


def test_what_is_frozen_is_not_saved(tmp_path: Path) -> None:
    made = small(0)
    made[0][3].requires_grad_(False)
    found = save(tmp_path, made)
    assert not [name for name in load_file(found.path / "model.safetensors") if name.startswith("3.")]
    load(found, made)


def test_of_a_model_with_an_adapter_the_adapter_is_saved(tmp_path: Path) -> None:
    made = [Backbone(tiny_qwen35(dtype=torch.float32)) for _ in range(2)]
    for number, backbone in enumerate(made):
        torch.manual_seed(number)
        add_adapter(backbone.model, AdapterConfig(rank=2))
    first, second = (
        (one.model, torch.optim.AdamW([p for p in one.model.parameters() if p.requires_grad])) for one in made
    )
    run(made[0], first[1], 1)
    found = save(tmp_path, first)
    names = load_file(found.path / "model.safetensors").keys()
    assert names and all(".lora_" in name for name in names)
    load(found, second)
    assert run(made[0], first[1], 2) == run(made[1], second[1], 2)
    assert bits(first[0]) == bits(second[0])


def test_a_whole_save_is_never_overwritten(tmp_path: Path) -> None:
    made = small(0)
    found = save(tmp_path, made)
    before = {path.name: path.read_bytes() for path in found.path.iterdir()}
    with pytest.raises(OctopusError, match=r"step-000002 exists; a save is never overwritten$"):
        save(tmp_path, made)
    assert {path.name: path.read_bytes() for path in found.path.iterdir()} == before
    assert sorted(path.name for path in tmp_path.iterdir()) == ["latest", "step-000002"]


def test_another_run_model_or_optimizer_is_refused(tmp_path: Path) -> None:
    made = small(0)
    found = save(tmp_path, made)
    with pytest.raises(ConfigError, match=r"is a save of another configuration; resume with its own"):
        load(found, made, run="b")
    wider = torch.nn.Linear(7, 5)
    with pytest.raises(OctopusError, match=r"is of another model: it has 0\.\w+ as .*, the model does not"):
        load(found, (wider, torch.optim.AdamW(wider.parameters())))
    with pytest.raises(OctopusError, match=r"as \(5,\) of torch\.float32, the model \(5,\) of torch\.float64"):
        load(found, small(0, dtype=torch.float64))
    deeper = torch.nn.Sequential(*made[0], torch.nn.Linear(3, 3))
    with pytest.raises(OctopusError, match=r"it lacks 4\.bias, 4\.weight"):
        load(found, (deeper, torch.optim.AdamW(deeper.parameters())))
    with pytest.raises(OctopusError, match="groups of the optimizer have other parameters"):
        load(found, (made[0], torch.optim.AdamW(made[0].parameters())))


def test_the_newest_save_has_the_highest_step(tmp_path: Path) -> None:
    made = small(0)
    for step in (1_000_000, 999_999, 2):
        save(tmp_path, made, step=step)
    found = saves.newest(tmp_path, report=lambda _: None)
    assert found is not None and found.path.name == "step-1000000"


def test_nothing_is_pickled(tmp_path: Path) -> None:
    """A file that a stranger gives must not be able to run code."""
    forbidden = re.compile(r"\bpickle\b|torch\.(save|load)\b|_object\(|\bdill\b|\bshelve\b|\bmarshal\b")
    for path in Path(train.__file__).parent.rglob("*.py"):
        found = [line for line in path.read_text().splitlines() if forbidden.search(line)]
        assert not found, f"{path}: {found}"
    for path in save(tmp_path, small(0)).path.iterdir():
        if path.suffix != ".safetensors":
            json.loads(path.read_text())
