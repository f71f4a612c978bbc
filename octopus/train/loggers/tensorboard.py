"""TensorBoard: event files in the run's folder, written by torch's writer."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path


class TensorBoardLogger:
    """Scalars. `tensorboard --logdir RUN_FOLDER` shows them."""

    def __init__(self, folder: Path, *, last: Mapping[str, float]) -> None:
        """Goes on after a step.

        Args:
            folder: Of the event files.
            last: The numbers of that step, `step` among them; empty where a run begins. Readers drop everything from
                that step on, what was written after its save included, so it is written again.

        Raises:
            ImportError: TensorBoard is not installed.
        """
        from torch.utils.tensorboard import SummaryWriter

        step = int(last.get("step", 0))
        self._writer = SummaryWriter(str(folder), purge_step=step)
        self.write(step, {name: value for name, value in last.items() if name not in {"step", "schema_version"}})

    def write(self, step: int, numbers: Mapping[str, float]) -> None:
        """See `Logger`."""
        for name, value in numbers.items():
            self._writer.add_scalar(name, value, global_step=step)

    def close(self) -> None:
        """See `Logger`."""
        self._writer.close()
