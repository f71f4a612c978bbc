"""One public bug as it would be dumped: the arrays, the code that finds it, and the arrays of the repaired stack."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from octopus.verify.inputs import Hints

CAUSAL = np.tri(16, dtype=bool)


@dataclass(frozen=True, kw_only=True)
class Bug:
    """A class of public bug reports.

    Attributes:
        name: Of the test.
        reports: Where it was reported; none for a neighbour of a reported kind, which its code should find as well.
        code: What finds it.
        shared: Arrays and tables that both dumps hold.
        wrong: What the faulty stack dumps besides.
        right: What the repaired one dumps besides; those of `wrong` that it does not name are left out.
        hints: Options of the command.
        stored: Types that arrays are stored in where numpy has none: `bfloat16`.
    """

    name: str
    reports: tuple[str, ...]
    code: str
    shared: Mapping[str, Any] = field(default_factory=dict)
    wrong: Mapping[str, Any] = field(default_factory=dict)
    right: Mapping[str, Any] = field(default_factory=dict)
    hints: Hints = field(default_factory=Hints)
    stored: Mapping[str, str] = field(default_factory=dict)


def causal(length: int) -> np.ndarray:
    """The bool mask of one sequence."""
    return CAUSAL[:length, :length]


def documents(*lengths: int) -> np.ndarray:
    """The bool mask of a packed row."""
    number = np.repeat(np.arange(len(lengths)), lengths)
    return causal(len(number)) & (number[:, None] == number)


def tree(parents: list[int]) -> np.ndarray:
    """The bool mask of rows with these predecessors."""
    seen = np.eye(len(parents), dtype=bool)
    for row, parent in enumerate(parents):
        if parent >= 0:
            seen[row] |= seen[parent]
    return seen


def additive(seen: np.ndarray, hidden: float = -np.inf, dtype: type = np.float32) -> np.ndarray:
    """The same as numbers to add."""
    return np.where(seen, 0, hidden).astype(dtype)


def changed(array: np.ndarray, *places: tuple[int, ...], value: Any) -> np.ndarray:
    """A copy with some entries set."""
    copy = array.copy()
    for place in places:
        copy[place] = value
    return copy
