"""A save of sharded weights is whole: it resumes on as many ranks, and loads on any other number.

Catches: shards instead of whole tensors in a file; shares cut at other rows; a moment that stays unsharded; generators
of rank 0 on all ranks; a rank that waits for ever for one whose disk is full, or goes on without it.
"""

import multiprocessing
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
import torch.distributed as dist
from safetensors.torch import load_file
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard

from octopus.core.errors import SaveFailed
from octopus.train import saves
from octopus.train.saves import tensors

Work = Callable[[Path, int], None]
RUN = "a"


def _rank(work: Work, folder: Path, rank: int, ranks: int) -> None:
    dist.init_process_group("gloo", init_method=f"file://{folder}/meeting", rank=rank, world_size=ranks)
    try:
        work(folder, rank)
    finally:
        dist.destroy_process_group()


def on_ranks(ranks: int, work: Work, folder: Path) -> None:
    """Runs the work on so many processes; each must end well."""
    (folder / "meeting").unlink(missing_ok=True)
    context = multiprocessing.get_context("fork")
    children = [context.Process(target=_rank, args=(work, folder, rank, ranks)) for rank in range(ranks)]
    for child in children:
        child.start()
    for child in children:
        child.join(60)
        child.kill()
    assert [child.exitcode for child in children] == [0] * ranks


def made(seed: int) -> tuple[torch.nn.Module, torch.optim.Optimizer]:
    """A model whose rows no number of ranks divides, sharded if there are ranks, and its optimizer."""
    torch.manual_seed(seed)
    model = torch.nn.Sequential(torch.nn.Linear(5, 7), torch.nn.Linear(7, 3)).double()
    if dist.is_initialized():
        mesh = init_device_mesh("cpu", (dist.get_world_size(),))
        for layer in (model[0], model):
            fully_shard(layer, mesh=mesh)
    return model, torch.optim.AdamW(model.parameters(), lr=1e-2)


def learn(model: torch.nn.Module, optimizer: torch.optim.Optimizer) -> None:
    """One step on the same rows everywhere, so that every number of ranks has the same gradient."""
    optimizer.zero_grad()
    model(torch.arange(10, dtype=torch.float64).reshape(2, 5) / 10).square().sum().backward()
    optimizer.step()


def train_and_save(folder: Path, rank: int) -> None:
    model, optimizer = made(seed=0)
    for step in (1, 2, 3):
        learn(model, optimizer)
        if step == 2:
            torch.manual_seed(100 + rank)
            saves.save(folder, step=2, model=model, optimizer=optimizer, run=RUN, shard_bytes=200)
    saves.save(folder, step=3, model=model, optimizer=optimizer, run=RUN)


def resume_and_save(folder: Path, rank: int) -> None:
    model, optimizer = made(seed=1)
    torch.manual_seed(7)
    unseeded = torch.rand(3)
    torch.manual_seed(7)
    found = saves.check(folder / "step-000002")
    assert saves.load(found, model=model, optimizer=optimizer, run=RUN) == 2
    drawn = torch.rand(3)
    if found.world_size == dist.get_world_size():
        torch.manual_seed(100 + rank)
        assert torch.equal(drawn, torch.rand(3))
    else:
        assert torch.equal(drawn, unseeded)
    learn(model, optimizer)
    saves.save(folder / f"on-{dist.get_world_size()}", step=3, model=model, optimizer=optimizer, run=RUN)


def same(folder: Path, other: Path) -> None:
    for name in ("model.safetensors", "optimizer.safetensors"):
        one, two = load_file(folder / "step-000003" / name), load_file(other / "step-000003" / name)
        assert one.keys() == two.keys() and len(one) in (4, 12)
        for key in one:
            torch.testing.assert_close(one[key], two[key], rtol=0, atol=1e-15)


@pytest.mark.parametrize("ranks", [2, pytest.param(4, marks=pytest.mark.slow)])
def test_a_save_of_several_ranks_loads_on_other_numbers(ranks: int, tmp_path: Path) -> None:
    on_ranks(ranks, train_and_save, tmp_path)
    found = saves.check(tmp_path / "step-000002")
    assert found.world_size == ranks
    assert sum(name.startswith("generators-") for name in found.files) == ranks
    assert sum(name.startswith("model-") for name in found.files) > 1
    for other in {1, 2, ranks}:
        on_ranks(other, resume_and_save, tmp_path)
        same(tmp_path, tmp_path / f"on-{other}")
    model, optimizer = made(seed=1)  # without any group
    assert saves.load(found, model=model, optimizer=optimizer, run=RUN) == 2
    learn(model, optimizer)
    saves.save(tmp_path / "alone", step=3, model=model, optimizer=optimizer, run=RUN)
    same(tmp_path, tmp_path / "alone")
    assert load_file(tmp_path / "alone" / "step-000003" / "model.safetensors")["0.weight"].shape == (7, 5)


def full_disk(*_: object) -> None:
    raise OSError(28, "No space left on device")


def fail_together(folder: Path, rank: int) -> None:
    model, optimizer = made(seed=0)
    learn(model, optimizer)
    saves.save(folder, step=1, model=model, optimizer=optimizer, run=RUN)
    for step, failing in ((2, 0), (3, 1)):
        with pytest.MonkeyPatch.context() as patch:
            if rank == failing:
                patch.setattr(tensors, "save_file", full_disk)
                patch.setattr(Path, "write_text", full_disk)
            expected = "No space left" if rank == failing else "another rank could not write"
            with pytest.raises(SaveFailed, match=expected):
                saves.save(folder, step=step, model=model, optimizer=optimizer, run=RUN)


def test_a_full_disk_on_one_rank_ends_the_save_on_all(tmp_path: Path) -> None:
    on_ranks(2, fail_together, tmp_path)
    assert {path.name for path in tmp_path.iterdir()} == {"latest", "meeting", "step-000001"}
