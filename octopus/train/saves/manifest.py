"""What a save should hold: the list by which a damaged one is told from a whole one."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from octopus.core.errors import DamagedSave, OctopusError

MANIFEST = "manifest.json"
FORMAT_VERSION = 1


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
    if content["format_version"] != FORMAT_VERSION:
        raise OctopusError(
            f"{folder} has format {content['format_version']}, expected {FORMAT_VERSION}; resume with the version of "
            "Octopus that wrote it"
        )
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
    try:
        content = json.loads(path.read_bytes())
    except FileNotFoundError:
        raise DamagedSave(f"{path} is missing") from None
    except ValueError as error:  # Not JSON, or not even text.
        raise DamagedSave(f"{path} cannot be read: {error}") from None
    if not isinstance(content, dict) or content.pop("sha256", None) != _own_hash(content):
        raise DamagedSave(f"{path} is not what was written: its own hash differs")
    return content


def _check_file(path: Path, entry: Mapping[str, Any]) -> None:
    if not path.is_file():
        raise DamagedSave(f"{path} is missing")
    size = path.stat().st_size
    if size != entry["bytes"]:
        raise DamagedSave(f"{path} has {size:,} bytes, expected {entry['bytes']:,}")
    if _sha256(path) != entry["sha256"]:
        raise DamagedSave(f"{path} is not what was written: its hash differs")


def _own_hash(content: Mapping[str, Any]) -> str:
    return hashlib.sha256(json.dumps(content, sort_keys=True).encode()).hexdigest()


def _sha256(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()
