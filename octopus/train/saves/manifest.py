"""What a save should hold: the list by which a damaged one is told from a whole one.

Its hashes find damage. They are no signature: whoever can write a save can write its hashes too. So what the list says
is checked before anything is read by it: it can name files of its own folder only, each once, and no links.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from octopus.core.errors import DamagedSave, OctopusError
from octopus.core.names import is_plain_name

MANIFEST = "manifest.json"
FORMAT_VERSION = 1
MOST_BYTES = 16 << 20
"""Of a manifest: it lists files of 2 GiB in a hundred bytes each."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Save:
    """A save that was found whole.

    Attributes:
        path: Its folder.
        step: After which it was made.
        world_size: Number of ranks that made it.
        run: Digest of the configuration of the run.
        files: Names of the files beside the manifest.
    """

    path: Path
    step: int
    world_size: int
    run: str
    files: tuple[str, ...]


def write_manifest(folder: Path, *, step: int, world_size: int, run: str) -> None:
    """Lists all files that are in the folder of a save."""
    files = {
        path.name: {"bytes": path.stat().st_size, "sha256": _sha256(path)} for path in sorted(folder.iterdir())
    }
    content = {
        "format_version": FORMAT_VERSION,
        "step": step,
        "world_size": world_size,
        "run": run,
        "files": files,
    }
    (folder / MANIFEST).write_text(json.dumps(content | {"sha256": _own_hash(content)}, indent=1) + "\n")


def check(folder: Path) -> Save:
    """Reads every byte of a save and compares it with the manifest.

    Raises:
        DamagedSave: Something is missing or is not what was written. The message is one line and names the file.
        OctopusError: It is whole, and of a format that this version does not read.
    """
    content = _read(folder / MANIFEST)
    version = content.get("format_version")
    if version != FORMAT_VERSION:
        raise OctopusError(
            f"{folder} has format {version}, expected {FORMAT_VERSION}; resume with the version of Octopus that wrote "
            "it"
        )
    _check_list(folder, content)
    for name, entry in content["files"].items():
        _check_file(folder / name, entry)
    return Save(
        path=folder,
        step=content["step"],
        world_size=content["world_size"],
        run=content["run"],
        files=tuple(content["files"]),
    )


def _read(path: Path) -> dict[str, Any]:
    _refuse_link(path.parent)
    _refuse_link(path)
    try:
        with path.open("rb") as file:
            text = file.read(MOST_BYTES + 1)
        if len(text) > MOST_BYTES:
            raise DamagedSave(f"{path} has more than {MOST_BYTES:,} bytes")
        content = json.loads(text, object_pairs_hook=_each_once)
    except FileNotFoundError:
        raise DamagedSave(f"{path} is missing") from None
    except (ValueError, RecursionError) as error:  # Not JSON, or not even text.
        raise DamagedSave(f"{path} cannot be read: {error}") from None
    if not isinstance(content, dict) or content.pop("sha256", None) != _own_hash(content):
        raise DamagedSave(f"{path} is not what was written: its own hash differs")
    return content


def _each_once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    table = dict(pairs)
    if len(table) != len(pairs):
        raise ValueError("a name occurs twice")
    return table


def _check_list(folder: Path, content: Mapping[str, Any]) -> None:
    """Raises unless the manifest is shaped like those of `write_manifest`, with names that may be joined to a path."""
    files, numbers = content.get("files"), [content.get("step"), content.get("world_size")]
    whole = all(isinstance(number, int) and number >= 0 for number in numbers) and isinstance(content.get("run"), str)
    if not whole or not isinstance(files, dict):
        raise DamagedSave(f"{folder / MANIFEST} is no list of a save: expected step, world_size, run and files")
    for name, entry in files.items():
        if not is_plain_name(name) or name == MANIFEST:
            raise DamagedSave(f"{folder / MANIFEST} names {name!r}; expected files of its own folder")
        if not isinstance(entry, dict) or not isinstance(entry.get("bytes"), int):
            raise DamagedSave(f"{folder / MANIFEST} does not say how many bytes {name} has")


def _refuse_link(path: Path) -> None:
    if path.is_symlink():
        raise DamagedSave(f"{path} is a link; expected the thing itself")


def _check_file(path: Path, entry: Mapping[str, Any]) -> None:
    _refuse_link(path)
    if not path.is_file():
        raise DamagedSave(f"{path} is missing")
    size = path.stat().st_size
    if size != entry["bytes"]:
        raise DamagedSave(f"{path} has {size:,} bytes, expected {entry['bytes']:,}")
    if _sha256(path) != entry.get("sha256"):
        raise DamagedSave(f"{path} is not what was written: its hash differs")


def _own_hash(content: Mapping[str, Any]) -> str:
    return hashlib.sha256(json.dumps(content, sort_keys=True).encode()).hexdigest()


def _sha256(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()
