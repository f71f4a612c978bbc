"""What rows are called in reports."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from octopus.verify.descent import stretches_of
from octopus.verify.lineage import Lineage
from octopus.verify.subject import Descent


@dataclass(frozen=True, slots=True, eq=False)
class Names:
    """Stretches that cover all rows, ascending: `starts[i]` begins the one called `names[i]`."""

    starts: np.ndarray
    names: tuple[str, ...]

    def index(self, rows: int | np.ndarray) -> np.ndarray:
        """The number of the stretch that each row is in."""
        return np.searchsorted(self.starts, rows, side="right") - 1

    def of(self, row: int) -> str:
        """The name of the stretch that a row is in."""
        return self.names[int(self.index(row))]

    def say(self, row: int) -> str:
        """A row for a sentence: `row 41 (branch a, token 3)`."""
        index = int(self.index(row))
        return f"row {row} ({self.names[index]}, token {row - int(self.starts[index])})"


def names_of(descent: Descent | None, lineage: Lineage | None, length: int) -> Names:
    """The declared names; else the runs of the descent, cut where others fork off; else one for all rows."""
    stretches = [] if descent is None else [*stretches_of(descent)]
    stretches = sorted((s for s in stretches if s.start < s.stop), key=lambda s: s.start)
    if not stretches:
        starts = [0] if lineage is None else _segment_starts(lineage)
        names = ["all rows"] if len(starts) == 1 else [f"segment {n}" for n in range(len(starts))]
        return Names(np.array(starts), tuple(names))
    starts, names, reach = [], [], 0
    for stretch in stretches:
        if stretch.start > reach:
            starts.append(reach)
            names.append("unnamed rows")
        starts.append(stretch.start)
        names.append(stretch.name)
        reach = stretch.stop
    if reach < length:
        starts.append(reach)
        names.append("unnamed rows")
    return Names(np.array(starts), tuple(names))


def _segment_starts(lineage: Lineage) -> list[int]:
    """Where runs begin, and behind the rows at which others fork off."""
    starts = {run.start for run in lineage.runs} | {run.before + 1 for run in lineage.runs}
    return sorted(start for start in starts if start < lineage.length) or [0]
