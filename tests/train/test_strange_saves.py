"""Saves from elsewhere, with hashes that are right: whoever can write a save can write its hashes too.

Catches: a name in a manifest that leads out of the save's folder, through a link or through `..`; a file that is read
though nothing vouches for it; a list that is too long, too deep or none; states of parameters that nobody has; an error
of Python's instead of ours.
"""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from test_saves_damage import make, newest, save

from octopus.core.errors import DamagedSave, OctopusError
from octopus.train import saves
from octopus.train.journal import Journal
from octopus.train.saves.manifest import MOST_BYTES


def signed(folder: Path, change: Callable[[dict[str, Any]], object]) -> None:
    """Changes a manifest and hashes it again."""
    path = folder / "manifest.json"
    content = json.loads(path.read_text())
    del content["sha256"]
    change(content)
    own = hashlib.sha256(json.dumps(content, sort_keys=True).encode()).hexdigest()
    path.write_text(json.dumps(content | {"sha256": own}))


def entry(path: Path) -> dict[str, Any]:
    return {"bytes": path.stat().st_size, "sha256": hashlib.sha256(path.read_bytes()).hexdigest()}


def rewritten(folder: Path, name: str, content: object) -> None:
    """Puts other JSON into a file, and the manifest right."""
    (folder / name).write_text(json.dumps(content))
    signed(folder, lambda manifest: manifest["files"].update({name: entry(folder / name)}))


def load(folder: Path) -> None:
    model, optimizer = make()
    saves.load(saves.check(folder), model=model, optimizer=optimizer, run="a")


@pytest.mark.parametrize(
    "name", ["../outside.safetensors", "{above}/outside.safetensors", "model/../x", ".", "..", "", "manifest.json",
             "a\\b", "c:x", "model-\x00.safetensors", "model-\x1b[2J.safetensors"],
)  # fmt: skip
def test_a_manifest_names_files_of_its_folder_only(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Mutation: names that are joined as they are. Nothing but the manifest may be opened."""
    folder = save(tmp_path, 1)
    os.link(folder / "model.safetensors", tmp_path / "outside.safetensors")
    named, opened = name.format(above=tmp_path), []
    outside = entry(tmp_path / "outside.safetensors")
    signed(folder, lambda manifest: manifest["files"].update({named: outside}))
    real = Path.open
    monkeypatch.setattr(Path, "open", lambda self, *rest: opened.append(self.name) or real(self, *rest))
    with pytest.raises(DamagedSave, match="expected files of its own folder") as refused:
        saves.check(folder)
    assert opened == ["manifest.json"] and str(refused.value).isprintable()


@pytest.mark.parametrize("what", ["model.safetensors", "optimizer.json", "manifest.json", ""])
def test_links_are_refused(what: str, tmp_path: Path) -> None:
    folder = save(tmp_path, 1)
    (folder / what).rename(tmp_path / "elsewhere")
    (folder / what).symlink_to(tmp_path / "elsewhere")
    with pytest.raises(DamagedSave, match="is a link; expected the thing itself"):
        saves.check(folder)


def test_links_are_deleted_and_not_followed(tmp_path: Path) -> None:
    """Catches: a run that ends in a traceback since what it wants to delete is a link; what it leads to, deleted."""
    (tmp_path / "mine").mkdir()
    (tmp_path / "run").mkdir()
    for name in (".saving-step-000009", "step-000001"):
        (tmp_path / "run" / name).symlink_to(tmp_path / "mine")
    saves.tidy(tmp_path / "run")
    saves.prune(tmp_path / "run", keep={2})
    assert not list((tmp_path / "run").iterdir()) and (tmp_path / "mine").is_dir()


def test_nothing_is_written_through_a_link(tmp_path: Path) -> None:
    """Catches: a run's folder from elsewhere, with a link where a draft will be: a file of its user is lost."""
    mine, folder = tmp_path / "mine", tmp_path / "run"
    mine.write_text("precious")
    folder.mkdir()
    for name in (".latest.draft", "latest", ".metrics.jsonl.draft"):
        (folder / name).symlink_to(mine)
    save(folder, 1)
    Journal(folder / "metrics.jsonl", step=1).write(2, {})
    assert mine.read_text() == "precious" and not (folder / "latest").is_symlink()


def test_a_name_that_repeats(tmp_path: Path) -> None:
    path = save(tmp_path, 1) / "manifest.json"
    path.write_text(path.read_text().replace('"files": {', '"files": {"model.safetensors": {},'))
    with pytest.raises(DamagedSave, match="a name occurs twice"):
        saves.check(path.parent)


def test_a_manifest_that_is_too_long(tmp_path: Path) -> None:
    folder = save(tmp_path, 1)
    with (folder / "manifest.json").open("a") as file:
        file.write(" " * MOST_BYTES)
    with pytest.raises(DamagedSave, match=r"has more than 16,777,216 bytes"):
        saves.check(folder)


@pytest.mark.parametrize("text", ["[" * 100_000, "{}", "[]", "7", '{"sha256": null}'])
def test_a_manifest_that_is_none(text: str, tmp_path: Path) -> None:
    save(tmp_path, 1)
    (save(tmp_path, 2) / "manifest.json").write_text(text)
    found, lines = newest(tmp_path)
    assert found == "step-000001" and len(lines) == 1 and "\n" not in lines[0]


@pytest.mark.parametrize(
    "field", [{"step": "1"}, {"step": -1}, {"world_size": None}, {"run": 3}, {"files": ["model.safetensors"]},
              {"files": {"model.safetensors": 3}}, {"files": {"model.safetensors": {"bytes": "9"}}}],
)  # fmt: skip
def test_a_manifest_of_another_shape(field: dict[str, Any], tmp_path: Path) -> None:
    folder = save(tmp_path, 1)
    signed(folder, lambda manifest: manifest.update(field))
    with pytest.raises(DamagedSave, match=r"manifest\.json (is no list of a save|does not say)"):
        saves.check(folder)


@pytest.mark.parametrize("file", ["optimizer.json", "generators-00000.json"])
def test_what_the_manifest_does_not_name_is_not_read(file: str, tmp_path: Path) -> None:
    folder = save(tmp_path, 1)
    signed(folder, lambda manifest: manifest["files"].pop(file))
    with pytest.raises(DamagedSave, match=rf"has no {file} in its manifest"):
        load(folder)


@pytest.mark.parametrize(
    "content", [[], 3, {}, {"groups": 3, "numbers": {}}, {"groups": [], "numbers": {}},
                {"groups": [{"names": ["weight", "bias"], "options": {"params": []}}], "numbers": {}},
                {"groups": [{"names": ["weight", "bias"], "options": {}}], "numbers": {"other": {}}},
                {"groups": [{"names": ["weight", "bias"], "options": {}}], "numbers": {"weight": 3}},
                {"groups": [{"names": [["weight"], {}], "options": {}}], "numbers": {}}],
)  # fmt: skip
def test_an_optimizer_of_another_shape(content: object, tmp_path: Path) -> None:
    folder = save(tmp_path, 1)
    rewritten(folder, "optimizer.json", content)
    with pytest.raises(OctopusError, match=str(folder)):
        load(folder)


@pytest.mark.parametrize("name", ["exp_avg/other", "exp_avg", "/", "weight"])
def test_states_of_parameters_that_nobody_has(name: str, tmp_path: Path) -> None:
    from safetensors.torch import save_file

    folder = save(tmp_path, 1)
    save_file({name: torch.zeros(2)}, folder / "optimizer.safetensors")
    signed(folder, lambda m: m["files"].update({"optimizer.safetensors": entry(folder / "optimizer.safetensors")}))
    with pytest.raises(OctopusError, match="which the optimizer does not have"):
        load(folder)


def test_states_of_parameters_that_the_optimizer_was_not_given(tmp_path: Path) -> None:
    model = torch.nn.Linear(4, 3)
    optimizer = torch.optim.SGD([model.weight], momentum=0.9)
    folder = saves.save(tmp_path, step=1, model=model, optimizer=optimizer, run="a")
    options = json.loads((folder / "optimizer.json").read_text())["groups"]
    rewritten(folder, "optimizer.json", {"groups": options, "numbers": {"bias": {"step": 1}}})
    with pytest.raises(OctopusError, match="holds a state of 'bias', which the optimizer does not have"):
        saves.load(saves.check(folder), model=model, optimizer=optimizer, run="a")


@pytest.mark.parametrize("content", [{}, [], {"torch_cpu": "00"}, {"torch_cpu": "zz"}, {"torch_cpu": 3}])
def test_generators_of_another_shape(content: object, tmp_path: Path) -> None:
    folder = save(tmp_path, 1)
    rewritten(folder, "generators-00000.json", content)
    with pytest.raises(OctopusError, match=r"generators-00000\.json"):
        load(folder)
