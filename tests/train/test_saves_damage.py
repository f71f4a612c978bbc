"""Whatever happens to the disk, the newest whole save is found, what is wrong is said in one line, and nothing is lost.

Catches: a half-written save that is found; a save that fails and takes an older one with it, or leaves a draft; a
flipped bit, a missing or a shortened file that is not noticed; damage that is deleted; a pointer that is written before
what it points to; an old save that is deleted before the new one is on the disk.
"""

import json
import multiprocessing
import os
import resource
import shutil
import signal
from collections.abc import Callable
from pathlib import Path

import pytest
import safetensors.torch
import torch

from octopus.core.errors import DamagedSave, OctopusError, SaveFailed
from octopus.train import disk, saves
from octopus.train.saves import tensors


def make() -> tuple[torch.nn.Module, torch.optim.Optimizer]:
    torch.manual_seed(0)
    model = torch.nn.Linear(4, 3)
    optimizer = torch.optim.AdamW(model.parameters())
    model(torch.ones(1, 4)).sum().backward()
    optimizer.step()
    return model, optimizer


def save(folder: Path, step: int, **options: int) -> Path:
    model, optimizer = make()
    return saves.save(folder, step=step, model=model, optimizer=optimizer, run="a", **options)


def newest(folder: Path) -> tuple[str | None, list[str]]:
    lines: list[str] = []
    found = saves.newest(folder, report=lines.append)
    return found and found.path.name, [line.replace(str(folder), "") for line in lines]


def contents(folder: Path) -> dict[str, bytes]:
    return {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def no_space() -> None:
    raise OSError(28, "No space left on device")


class FullDisk:
    """Refuses the n-th operation on the disk, and all later ones."""

    def __init__(
        self, monkeypatch: pytest.MonkeyPatch, *, works: int, refuse: Callable[[], None] = no_space
    ) -> None:
        self.left, self.refuse = works, refuse
        self.done: list[str] = []
        for owner, name in (
            (os, "fsync"), (Path, "mkdir"), (Path, "rename"), (Path, "replace"), (Path, "write_text"),
            (tensors, "save_file"),
        ):  # fmt: skip
            monkeypatch.setattr(owner, name, self.wrapped(name, getattr(owner, name)))

    def wrapped(self, name: str, real: Callable[..., object]) -> Callable[..., object]:
        def call(*args: object, **options: object) -> object:
            self.done.append(name)
            self.left -= 1
            if self.left < 0:
                self.refuse()
            return real(*args, **options)

        return call


def moments() -> range:
    """As many operations as a save takes: each of them is refused once."""
    return range(19)


@pytest.mark.parametrize("works", moments())
def test_a_full_disk_costs_the_new_save_alone(
    works: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    save(tmp_path, 1)
    before = contents(tmp_path)
    with monkeypatch.context() as patch:
        full = FullDisk(patch, works=works)
        with pytest.raises(SaveFailed, match=r"step-000002 could not be written: .*No space left on device"):
            save(tmp_path, 2)
    after = contents(tmp_path)
    if "replace" in full.done[:-1]:
        assert before.pop("latest") != after["latest"] == b"step-000002\n"
    assert {name: after[name] for name in before} == before
    renamed = "rename" in full.done[:-1]  # From then on the save is whole; only its name is not in `latest`.
    assert newest(tmp_path) == ("step-000002" if renamed else "step-000001", [])
    assert renamed or not list(tmp_path.glob(".saving-*"))
    if not renamed:
        save(tmp_path, 2)
        assert newest(tmp_path) == ("step-000002", [])


def killed_while_saving(folder: Path, works: int) -> None:
    with pytest.MonkeyPatch.context() as patch:
        FullDisk(patch, works=works, refuse=lambda: os.kill(os.getpid(), signal.SIGKILL))
        save(folder, 2)


@pytest.mark.parametrize("works", moments())
def test_a_kill_costs_the_new_save_alone(works: int, tmp_path: Path) -> None:
    save(tmp_path, 1)
    before = contents(tmp_path)
    child = multiprocessing.get_context("fork").Process(target=killed_while_saving, args=(tmp_path, works))
    child.start()
    child.join(30)
    assert child.exitcode == -signal.SIGKILL
    found, lines = newest(tmp_path)
    assert found == ("step-000002" if (tmp_path / "step-000002").exists() else "step-000001")
    assert lines == []
    after = contents(tmp_path)
    assert all(after[name] == content for name, content in before.items() if name != "latest")
    saves.tidy(tmp_path)
    save(tmp_path, 3)
    assert newest(tmp_path) == ("step-000003", [])
    assert not list(tmp_path.glob(".saving-*"))


def test_every_operation_of_a_save_is_refused_above(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    save(tmp_path, 1)
    with monkeypatch.context() as patch:
        full = FullDisk(patch, works=10**6)
        save(tmp_path, 2)
    assert len(full.done) == len(moments()), full.done
    assert full.done[-6:] == ["rename", "fsync", "write_text", "fsync", "replace", "fsync"]
    assert full.done.count("save_file") == 2


def test_a_limit_of_the_system_is_an_error_of_the_save(tmp_path: Path) -> None:
    """Catches: an error of the tensor library that is not taken for one of the disk. No file may pass 100 bytes."""
    save(tmp_path, 1)
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (100, before[1]))
    try:
        with pytest.raises(SaveFailed, match="step-000002 could not be written: "):
            save(tmp_path, 2)
        with pytest.raises(OSError, match=r"x\.safetensors: .*os error 27"):
            tensors.put_file(tmp_path / "x.safetensors", {"x": torch.zeros(99)})
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
    (tmp_path / "x.safetensors").unlink(missing_ok=True)
    assert newest(tmp_path) == ("step-000001", [])


FILES = ("model.safetensors", "optimizer.safetensors", "optimizer.json", "generators-00000.json", "manifest.json")


def flipped(path: Path) -> None:
    content = bytearray(path.read_bytes())
    content[len(content) // 2] ^= 1
    path.write_bytes(content)


def shortened(path: Path) -> None:
    path.write_bytes(path.read_bytes()[:-3])


@pytest.mark.parametrize("harm", [flipped, shortened, Path.unlink])
@pytest.mark.parametrize("file", FILES)
def test_damage_is_named_and_the_save_before_it_is_used(
    file: str, harm: Callable[[Path], None], tmp_path: Path
) -> None:
    save(tmp_path, 1)
    path = save(tmp_path, 2)
    assert newest(tmp_path) == ("step-000002", [])
    assert sorted(entry.name for entry in path.iterdir()) == sorted(FILES)
    harm(path / file)
    before = contents(tmp_path)
    found, lines = newest(tmp_path)
    assert found == "step-000001"
    assert len(lines) == 1 and lines[0].startswith(f"damaged: /step-000002/{file} ") and "\n" not in lines[0]
    assert contents(tmp_path) == before


def test_a_manifest_of_another_step_is_not_believed(tmp_path: Path) -> None:
    path = save(tmp_path, 1) / "manifest.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | {"step": 7}))
    with pytest.raises(DamagedSave, match="its own hash differs"):
        saves.check(path.parent)


def test_damage_upon_damage_and_a_lost_save_are_named(tmp_path: Path) -> None:
    for step in (1, 2, 3, 4):
        save(tmp_path, step)
    shutil.rmtree(tmp_path / "step-000004")
    flipped(tmp_path / "step-000003" / "model.safetensors")
    (tmp_path / "step-000002" / "manifest.json").unlink()
    assert newest(tmp_path) == (
        "step-000001",
        [
            "damaged: /latest names 'step-000004', which is not there",
            "damaged: /step-000003/model.safetensors is not what was written: its hash differs",
            "damaged: /step-000002/manifest.json is missing",
        ],
    )


@pytest.mark.parametrize("pointer", [b"", b"\xff\x00\n", b"step-0000"])
def test_a_damaged_pointer_is_named_and_not_needed(pointer: bytes, tmp_path: Path) -> None:
    save(tmp_path, 1)
    (tmp_path / "latest").write_bytes(pointer)
    found, lines = newest(tmp_path)
    assert found == "step-000001"
    assert len(lines) == 1 and lines[0].startswith("damaged: /latest names '") and "\n" not in lines[0]
    (tmp_path / "latest").unlink()
    assert newest(tmp_path) == ("step-000001", [])


def test_no_whole_save_is_an_error_and_no_save_is_none(tmp_path: Path) -> None:
    assert newest(tmp_path) == (None, [])
    flipped(save(tmp_path, 1) / "model.safetensors")
    with pytest.raises(OctopusError, match=r"holds no whole save any more; choose another run\.folder"):
        newest(tmp_path)


def test_a_draft_is_no_save_and_is_tidied(tmp_path: Path) -> None:
    save(tmp_path, 1).rename(tmp_path / ".saving-step-000001")
    (tmp_path / "latest").unlink()
    assert newest(tmp_path) == (None, [])
    saves.tidy(tmp_path)
    assert list(tmp_path.iterdir()) == []


def test_a_damaged_save_makes_room_and_is_kept(tmp_path: Path) -> None:
    save(tmp_path, 1)
    for number in (1, 2):
        flipped(save(tmp_path, 2) / "model.safetensors")
        assert newest(tmp_path)[0] == "step-000001", number
    save(tmp_path, 2)
    assert newest(tmp_path) == ("step-000002", [])
    names = ["damaged-step-000002", "damaged-step-000002-2", "latest", "step-000001", "step-000002"]
    assert sorted(path.name for path in tmp_path.iterdir()) == names


def test_the_newest_and_the_best_are_kept(tmp_path: Path) -> None:
    for step in range(1, 6):
        save(tmp_path, step)
    saves.prune(tmp_path, keep={2, 4})
    assert saves.saved_steps(tmp_path) == [2, 4, 5]  # 5 is not ours: it was found damaged
    assert not list(tmp_path.glob(".*"))


def test_nothing_goes_before_the_new_name_is_on_the_disk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Order of a save: every file, the manifest, the folder, the new name, then the pointer."""
    events: list[str] = []
    real = disk.flush

    def flush(path: Path) -> None:
        events.append(path.name)
        real(path)

    monkeypatch.setattr("octopus.train.saves.writing.flush", flush)
    monkeypatch.setattr(disk, "flush", flush)
    save(tmp_path, 1)
    files = sorted(name for name in FILES if name != "manifest.json")
    draft, folder = ".saving-step-000001", tmp_path.name
    assert events == [*files, "manifest.json", draft, folder, ".latest.draft", folder]


def test_the_format_of_a_later_version_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("octopus.train.saves.manifest.FORMAT_VERSION", 2)
    save(tmp_path, 1)
    monkeypatch.undo()
    with pytest.raises(OctopusError, match="has format 2, expected 1"):
        newest(tmp_path)


def test_the_files_open_without_us(tmp_path: Path) -> None:
    path = save(tmp_path, 1)
    assert set(safetensors.torch.load_file(path / "model.safetensors")) == {"weight", "bias"}
    assert "exp_avg/weight" in safetensors.torch.load_file(path / "optimizer.safetensors")
