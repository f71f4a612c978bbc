"""One line of JSON for a run of the fuzzers; `python -m fuzz KIND --seed SEED` runs it again."""

from __future__ import annotations

import json
import platform
from dataclasses import asdict, dataclass, field
from datetime import UTC, datetime
from pathlib import Path


@dataclass(frozen=True, kw_only=True, slots=True)
class Record:
    """A run and what came of it.

    Attributes:
        kind: The mode.
        seed: What it drew from.
        operations: Calls of the store's primitives, as far as the attacks count them; 0 where none of them does.
        seconds: How long it took by the clock.
        result: `clean` and what was done, or `found` and what.
        date: The day it ended, UTC.
        python: The interpreter's version.
    """

    kind: str
    seed: int
    operations: int
    seconds: float
    result: str
    date: str = field(default_factory=lambda: datetime.now(UTC).date().isoformat())
    python: str = field(default_factory=platform.python_version)

    def append_to(self, path: Path) -> None:
        """Adds the line to a file of such lines, which is made if it is not there."""
        with path.open("a") as file:
            file.write(json.dumps(asdict(self)) + "\n")
