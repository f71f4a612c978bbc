"""One line a step, with the time that is left."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from typing import Any


class Progress:
    """Says what a step brought, and how long the rest of its stage will take at the pace so far."""

    def __init__(self, report: Callable[[str], None], *, clock_s: Callable[[], float] = time.monotonic) -> None:
        self._report = report
        self._clock_s = clock_s
        self._stage = ""
        self._number = self._of = self._steps = 0
        self._began_s = self._spent_s = 0.0

    def begin(self, stage: str, number: int, of: int) -> None:
        """Step `number` of `of` of a stage begins."""
        if stage != self._stage:
            self._stage, self._steps, self._spent_s = stage, 0, 0.0
        self._number, self._of = number, of
        self._began_s = self._clock_s()

    def end(self, figures: Mapping[str, Any]) -> None:
        """It has ended, with these figures."""
        took_s = self._clock_s() - self._began_s
        self._steps += 1
        self._spent_s += took_s
        left_s = self._spent_s / self._steps * (self._of - self._number)
        place = f"{self._stage} {self._number:>{len(str(self._of))}}/{self._of}"
        self._report(f"{place}   {_brought(figures)}   {took_s:.1f} s, {duration(left_s)} left")


def duration(seconds: float) -> str:
    """A time for people: `42 s`, `3 min 05 s`, `2 h 10 min`."""
    whole = round(seconds)
    if whole < 60:
        return f"{whole} s"
    if whole < 3600:
        return f"{whole // 60} min {whole % 60:02} s"
    return f"{whole // 3600} h {whole % 3600 // 60:02} min"


def _brought(figures: Mapping[str, Any]) -> str:
    loss = f"loss {figures['loss']:+.4f}   grad norm {figures['grad_norm']:.3g}   {figures['loss_terms']:,} terms"
    if not figures["updated"]:
        loss += "   NOT FINITE, weights left as they were"
    if "reward" not in figures:
        return loss
    return f"reward {figures['reward']:.3f}   exact {figures['exact_match']:.3f}   {loss}"
