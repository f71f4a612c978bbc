"""The loggers that a configuration names, as one."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from octopus.core.errors import ConfigError
from octopus.train.config import LoggerName
from octopus.train.loggers.logger import Logger, numbers_in
from octopus.train.loggers.tensorboard import TensorBoardLogger
from octopus.train.loggers.trackio import TrackioLogger
from octopus.train.loggers.wandb import WandbLogger

Line = Mapping[str, Any]


class Loggers:
    """Passes figures on to all of them."""

    def __init__(
        self, names: Sequence[LoggerName], *, folder: Path, project: str, config: dict[str, Any], last: Line | None
    ) -> None:
        """Opens them.

        Args:
            names: Which.
            folder: Of the run, which gives it its name.
            project: That the run belongs to.
            config: What is run.
            last: The last line of `metrics.jsonl` that a resume has kept, None where the run begins.

        Raises:
            ConfigError: The library of one is not installed.
        """
        name = folder.resolve().name
        numbers = {} if last is None else dict(numbers_in(last))
        made: dict[LoggerName, Callable[[], Logger]] = {
            "tensorboard": lambda: TensorBoardLogger(folder / "tensorboard", last=numbers),
            "wandb": lambda: WandbLogger(folder, project=project, name=name, config=config),
            "trackio": lambda: TrackioLogger(project=project, name=name, config=config),
        }
        self._loggers = [_opened(one, made[one]) for one in dict.fromkeys(names)]

    def write(self, step: int, figures: Mapping[str, Any]) -> None:
        """Writes the numbers among the figures of a step."""
        numbers = dict(numbers_in(figures))
        for logger in self._loggers:
            logger.write(step, numbers)

    def close(self) -> None:
        """Sends what is still held."""
        for logger in self._loggers:
            logger.close()


def _opened(name: LoggerName, make: Callable[[], Logger]) -> Logger:
    try:
        return make()
    except ImportError as error:
        raise ConfigError(
            f"run.loggers: {name} is not installed ({error}); pip install 'octopus-kv[{name}]', or leave it out"
        ) from error
