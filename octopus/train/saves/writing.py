"""Writing a save: aside, onto the disk, renamed, named."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import torch

from octopus.core.errors import DamagedSave, OctopusError, SaveFailed
from octopus.train.disk import flush
from octopus.train.parallel.ranks import Ranks, present
from octopus.train.saves.folder import DRAFT, path_of, point_to
from octopus.train.saves.generators import generators as generators_now
from octopus.train.saves.manifest import MANIFEST, check, write_manifest
from octopus.train.saves.model import changing
from octopus.train.saves.optimizer import optimizer_state
from octopus.train.saves.tensors import SHARD_BYTES, put_file, write_tensors


def save(
    folder: Path,
    *,
    step: int,
    model: torch.nn.Module,
    optimizer: torch.optim.Optimizer,
    run: str,
    generators: Mapping[str, Any] | None = None,
    shard_bytes: int = SHARD_BYTES,
) -> Path:
    """Writes a save and returns its folder. All ranks must call it; the first of them writes, on a disk that all share.

    A damaged save of the same step is moved aside, as `damaged-step-000010` and so on.

    Args:
        folder: Of the run.
        step: After which it is made.
        model: On this device, or sharded over ranks.
        optimizer: Of parameters of the model.
        run: Digest of the configuration, which `load` compares.
        generators: What to save of this rank's generators, if it is not what they stand at now.
        shard_bytes: Most bytes of a file.

    Raises:
        SaveFailed: The disk is full or broken, here or on another rank. Nothing of the save is left.
        OctopusError: The folder has a whole save of this step already.
    """
    ranks = present()
    final, attempt = path_of(folder, step), _Attempt(ranks)
    draft = folder / f"{DRAFT}{final.name}"
    lead = ranks.first
    if lead:
        attempt.run(lambda: _prepare(final, draft))
    attempt.agree(final, draft)
    state = dict(generators or generators_now())
    attempt.run(lambda: _put_json(draft / generators_file(ranks.rank), state))
    tensors, rest = optimizer_state(model, optimizer)
    put = (lambda path, shard: attempt.run(lambda: put_file(path, shard))) if lead else None
    write_tensors(draft, "model", changing(model), shard_bytes=shard_bytes, put=put)
    write_tensors(draft, "optimizer", tensors, shard_bytes=shard_bytes, put=put)
    if lead:
        attempt.run(lambda: _put_json(draft / "optimizer.json", rest))
    attempt.agree(final, draft)
    if lead:
        attempt.run(lambda: _publish(draft, final, step=step, world_size=ranks.size, run=run))
    attempt.agree(final, draft)
    return final


def generators_file(rank: int) -> str:
    """The name of the file of a rank's generators."""
    return f"generators-{rank:05d}.json"


class _Attempt:
    """What has gone wrong on this rank so far. After that it only keeps step with the others, who may be gathering."""

    def __init__(self, ranks: Ranks) -> None:
        self._ranks = ranks
        self._error: OSError | OctopusError | None = None

    def run(self, work: Callable[[], None]) -> None:
        """Does it, unless something has gone wrong before."""
        if self._error is None:
            try:
                work()
            except (OSError, OctopusError) as error:
                self._error = error

    def agree(self, final: Path, draft: Path) -> None:
        """Raises on all ranks if something has gone wrong on any."""
        if not self._ranks.total([self._error is not None])[0]:
            return
        if self._ranks.first:
            shutil.rmtree(draft, ignore_errors=True)
        if isinstance(self._error, OctopusError):
            raise self._error
        reason = self._error or "another rank could not write its part"
        raise SaveFailed(f"{final} could not be written: {reason}; earlier saves are as they were") from self._error


def _prepare(final: Path, draft: Path) -> None:
    final.parent.mkdir(parents=True, exist_ok=True)
    if final.exists():
        _move_aside(final)
    draft.mkdir()


def _move_aside(final: Path) -> None:
    """Makes room where a damaged save lies."""
    try:
        check(final)
    except DamagedSave:
        taken = sum(1 for _ in final.parent.glob(f"damaged-{final.name}*"))
        final.rename(final.with_name(f"damaged-{final.name}" + (f"-{taken + 1}" if taken else "")))
        return
    raise OctopusError(f"{final} exists; a save is never overwritten")


def _publish(draft: Path, final: Path, *, step: int, world_size: int, run: str) -> None:
    for path in sorted(draft.iterdir()):
        flush(path)
    write_manifest(draft, step=step, world_size=world_size, run=run)
    flush(draft / MANIFEST)
    flush(draft)
    draft.rename(final)
    flush(final.parent)
    point_to(final)


def _put_json(path: Path, content: Mapping[str, Any]) -> None:
    path.write_text(json.dumps(content) + "\n")
