"""Weights & Biases. Where it sends to, and whether it works offline, is the library's own configuration."""

from __future__ import annotations

import secrets
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from octopus.train.disk import write_whole

ID_FILE = "wandb-id"


class WandbLogger:
    """One run there for one folder here: its id is kept in the folder, so that a resume goes on in the same run."""

    def __init__(self, folder: Path, *, project: str, name: str, config: dict[str, Any]) -> None:
        """Begins or resumes the run.

        Raises:
            ImportError: wandb is not installed.
        """
        import wandb

        kept = folder / ID_FILE
        if not kept.exists():
            write_whole(kept, secrets.token_hex(8))
        self._run = wandb.init(
            project=project, name=name, id=kept.read_text(), resume="allow", dir=str(folder), config=config
        )

    def write(self, step: int, numbers: Mapping[str, float]) -> None:
        """See `Logger`. The library leaves out steps before the last one that it has."""
        self._run.log(dict(numbers), step=step)

    def close(self) -> None:
        """See `Logger`."""
        self._run.finish()
