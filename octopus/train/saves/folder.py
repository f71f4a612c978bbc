"""The saves in the folder of a run: which there are, which is the newest whole one, which may go."""

from __future__ import annotations

import re
import shutil
from collections.abc import Callable, Collection
from pathlib import Path

from octopus.core.errors import DamagedSave, OctopusError
from octopus.train.disk import write_whole
from octopus.train.saves.manifest import Save, check

LATEST = "latest"
DRAFT = ".saving-"
"""Names that begin so are of something that is not finished yet, or not wanted any more."""
_NAME = re.compile(r"step-(\d{6,})")


def path_of(folder: Path, step: int) -> Path:
    """Where the save of a step lies."""
    return folder / f"step-{step:06d}"


def saved_steps(folder: Path) -> list[int]:
    """The steps of which there are saves, whole or damaged, in rising order."""
    names = (_NAME.fullmatch(path.name) for path in folder.glob("step-*"))
    return sorted(int(match[1]) for match in names if match)


def point_to(path: Path) -> None:
    """Names a save as the one that was written last."""
    write_whole(path.parent / LATEST, f"{path.name}\n")


def newest(folder: Path, *, report: Callable[[str], None]) -> Save | None:
    """The whole save with the highest step; None where there is no save at all. Nothing is changed.

    Args:
        folder: Of the run.
        report: Told one line of each save that is lost or damaged.

    Raises:
        OctopusError: There are saves, and none is whole.
    """
    steps, pointer = saved_steps(folder), folder / LATEST
    written = pointer.is_file()
    if written:
        named = pointer.read_text(errors="replace").strip()
        if named not in {path_of(folder, step).name for step in steps}:
            report(f"damaged: {pointer} names {named!r}, which is not there")
    for step in reversed(steps):
        try:
            return check(path_of(folder, step))
        except DamagedSave as damage:
            report(f"damaged: {damage}")
    if steps or written:
        raise OctopusError(f"{folder} holds no whole save any more; choose another run.folder to begin again")
    return None


def to_resume(folder: Path, *, resume: bool, report: Callable[[str], None]) -> Save | None:
    """The save that a run goes on from, None if it begins.

    Raises:
        OctopusError: There are saves and the run is not to be resumed, or none of them is whole.
    """
    steps = saved_steps(folder)
    if steps and not resume:
        raise OctopusError(
            f"{folder} holds saves up to {path_of(folder, steps[-1]).name}; set run.resume=true to go on from there, "
            "or choose another run.folder"
        )
    return newest(folder, report=report)


def prune(folder: Path, *, keep: Collection[int]) -> None:
    """Deletes the saves of all steps but these, as far as they are older than the newest of these.

    What is newer was not made by this run: it was found damaged, and may still be of use to somebody. A save that is
    half deleted when the process is killed is no save any more.
    """
    for step in saved_steps(folder):
        if step not in keep and step < max(keep):
            path = path_of(folder, step)
            _delete(path.rename(folder / f"{DRAFT}{path.name}-discarded"))


def tidy(folder: Path) -> None:
    """Deletes what a run that was killed left unfinished."""
    for leftover in folder.glob(f"{DRAFT}*"):
        _delete(leftover)


def _delete(path: Path) -> None:
    if path.is_dir() and not path.is_symlink():
        shutil.rmtree(path)
    else:
        path.unlink()
