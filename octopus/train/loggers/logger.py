"""What every logger can do, and which figures it is given."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from typing import Any, Protocol


class Logger(Protocol):
    """Receives numbers by name, a step at a time."""

    def write(self, step: int, numbers: Mapping[str, float]) -> None:
        """Takes the numbers of a step; more of the same step may follow."""

    def close(self) -> None:
        """Sends what is still held."""


def numbers_in(figures: Mapping[str, Any], *, prefix: str = "") -> Iterator[tuple[str, float]]:
    """The finite numbers among figures, those of a mapping as `outcomes/answered`."""
    for name, value in figures.items():
        if isinstance(value, Mapping):
            yield from numbers_in(value, prefix=f"{prefix}{name}/")
        elif isinstance(value, int | float) and math.isfinite(value):
            yield f"{prefix}{name}", float(value)
