"""What a run writes down as it goes: one JSON object a line, and nothing of what a crash cut off from its save."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from octopus.train.disk import flush, write_whole

SCHEMA_VERSION = 1


class Journal:
    """A file of JSON lines, each of which belongs to a step. A line is in the file when `write` returns."""

    def __init__(self, path: Path, *, step: int) -> None:
        """Opens the journal of a run that stands after `step`; lines of later steps, from before a resume, are dropped.

        Args:
            path: The file; made if there is none.
            step: -1 for a run that begins: nothing is kept.
        """
        self.path = path
        path.parent.mkdir(parents=True, exist_ok=True)
        kept = "".join(line for line in _whole_lines(path) if json.loads(line)["step"] <= step)
        write_whole(path, kept)

    def write(self, step: int, *records: Mapping[str, Any]) -> None:
        """Appends one line for each record, with `schema_version` and `step` before its own keys."""
        heads = {"schema_version": SCHEMA_VERSION, "step": step}
        text = "".join(json.dumps(heads | _plain(record), allow_nan=False) + "\n" for record in records)
        with self.path.open("a") as file:
            file.write(text)

    def flush(self) -> None:
        """Waits until every line is on the disk."""
        flush(self.path)


def read_journal(path: Path) -> list[dict[str, Any]]:
    """The lines of a journal; none if there is no file. A last line that is not whole is left out."""
    return [json.loads(line) for line in _whole_lines(path)]


def _whole_lines(path: Path) -> list[str]:
    lines = path.read_text().splitlines(keepends=True) if path.exists() else []
    return [line for line in lines if line.endswith("\n")]


def _plain(record: Mapping[str, Any]) -> dict[str, Any]:
    """The record with null for what is not a finite number, which JSON cannot say."""
    return {
        name: None if isinstance(value, float) and not math.isfinite(value) else value
        for name, value in record.items()
    }
