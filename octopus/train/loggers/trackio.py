"""Trackio: a local database, shown by `trackio show`."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any


class TrackioLogger:
    """One run there for one folder name here; a resume goes on in it."""

    def __init__(self, *, project: str, name: str, config: dict[str, Any]) -> None:
        """Begins or resumes the run.

        Raises:
            ImportError: trackio is not installed.
        """
        import trackio

        self._run = trackio.init(project=project, name=name, resume="allow", config=config, embed=False)

    def write(self, step: int, numbers: Mapping[str, float]) -> None:
        """See `Logger`."""
        self._run.log(dict(numbers), step=step)

    def close(self) -> None:
        """See `Logger`."""
        self._run.finish()
