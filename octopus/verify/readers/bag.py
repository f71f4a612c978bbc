"""Everything that the files given together hold, by name: the one thing that format readers look at."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from octopus.verify.inputs import Unreadable

LARGEST = 2**48
"""No row, length or position is beyond it, so sums of a few never leave 64 bits."""


@dataclass(frozen=True, kw_only=True, slots=True, eq=False)
class Stored:
    """An array and the name of the type that the file stores it in (bfloat16 is widened to float32 when read)."""

    array: np.ndarray
    dtype: str


@dataclass(frozen=True, kw_only=True, slots=True)
class Line:
    """A JSON object of a file of lines, and the number of its line, from 1."""

    number: int
    value: Mapping[str, Any]


@dataclass(frozen=True, kw_only=True, eq=False)
class Bag:
    """Named arrays, JSON tables that are no arrays, and JSON lines.

    Attributes:
        source: Where they came from, for reports.
        arrays: By their name in the container, or the name of their file.
        tables: What a JSON document holds besides arrays: a segment table, a model's configuration (`config`).
        lines: Objects of a `.jsonl` file.
        loose: Arrays that have only the name of their file, each with that file.
        notes: What was taken for what.
    """

    source: str | None = None
    arrays: Mapping[str, Stored] = field(default_factory=dict)
    tables: Mapping[str, Any] = field(default_factory=dict)
    lines: tuple[Line, ...] = ()
    loose: Mapping[str, str] = field(default_factory=dict)
    notes: tuple[str, ...] = ()

    def first(self, *names: str) -> str | None:
        """The first of the names that an array has; None if none has."""
        return next((name for name in names if name in self.arrays), None)

    def array(self, *names: str) -> np.ndarray | None:
        """The array of the first of the names that is there; None if none is."""
        name = self.first(*names)
        return None if name is None else self.arrays[name].array

    def integers(self, *names: str) -> np.ndarray | None:
        """The same as int64. Raises `Unreadable` if its values are no integers."""
        name = self.first(*names)
        return None if name is None else whole_numbers(self.arrays[name].array, name)

    def number(self, *names: str) -> int | None:
        """An integer that stands alone. Raises `Unreadable` if it does not, or is none."""
        values = self.integers(*names)
        if values is not None and values.size != 1:
            raise Unreadable(f"{self.first(*names)} should be one number and has shape {values.shape}")
        return None if values is None else int(values.reshape(-1)[0])


def whole_numbers(array: np.ndarray, name: str) -> np.ndarray:
    """The array as int64, unchanged in value. Raises `Unreadable` where that is not possible."""
    if array.dtype.kind == "f" and (not np.isfinite(array).all() or (array % 1 != 0).any()):
        raise Unreadable(f"{name} should hold integers and has other values")
    if array.size and not (float(array.min()) >= -LARGEST and float(array.max()) <= LARGEST):
        raise Unreadable(f"{name} has values out of all bounds")
    return array.astype(np.int64)
