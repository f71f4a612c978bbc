"""What a run tells while it goes on."""

from __future__ import annotations

import time
from collections.abc import Callable


class Progress:
    """Prints a line with a count, its unit and the time, now and then and at the end."""

    def __init__(
        self, what: str, unit: str, *, every_s: float = 10.0, clock_s: Callable[[], float] = time.monotonic
    ) -> None:
        self._what, self._unit, self._every_s, self._clock_s = what, unit, every_s, clock_s
        self._began_s = self._told_s = clock_s()
        self.count = 0

    def add(self, count: int = 1) -> None:
        """So many more are done."""
        self.count += count
        if self._clock_s() - self._told_s >= self._every_s:
            self._told_s = self._clock_s()
            self._tell("...")

    def end(self, note: str = "") -> None:
        """All are done."""
        self._tell(note)

    def _tell(self, note: str) -> None:
        spent_s = self._clock_s() - self._began_s
        rate = self.count / spent_s if spent_s else 0.0
        line = f"{self._what}: {self.count:,} {self._unit} in {spent_s:.1f} s ({rate:,.0f} {self._unit}/s)"
        print(f"{line}; {note}" if note else line, flush=True)
