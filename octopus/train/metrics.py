"""Figures of a run, one JSON object a line."""

from __future__ import annotations

import json
from dataclasses import asdict
from pathlib import Path

from octopus.train.step import StepResult

SCHEMA_VERSION = 1


class Metrics:
    """The file `metrics.jsonl` of a run. A line is in the file when `write` returns."""

    def __init__(self, path: Path, *, step: int) -> None:
        """Opens the file of a run that stands after `step`; lines of later steps, from before a resume, are dropped."""
        self.path = path
        path.parent.mkdir(parents=True, exist_ok=True)
        lines = path.read_text().splitlines(keepends=True) if path.exists() else []
        whole = [line for line in lines if line.endswith("\n")]  # a crash may have cut the last one
        path.write_text("".join(line for line in whole if json.loads(line)["step"] <= step))

    def write(self, step: int, result: StepResult) -> None:
        """Appends the line of a step. The keys are `step` and the fields of StepResult, documented there."""
        figures = {
            name: None if value != value else value  # JSON has no NaN
            for name, value in asdict(result).items()
        }
        with self.path.open("a") as file:
            file.write(json.dumps({"schema_version": SCHEMA_VERSION, "step": step, **figures}) + "\n")
