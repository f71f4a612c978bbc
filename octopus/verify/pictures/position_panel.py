"""Positions of the rows against their depth: those that are stored, and the line on which they should lie."""

from __future__ import annotations

from itertools import pairwise

import numpy as np

from octopus.verify.case import Case
from octopus.verify.pictures.scene import FAINT, GRID, LEAK, SEGMENTS, Dot, Path, Shape, Text
from octopus.verify.runs import UNKNOWN

WIDTH, HEIGHT, LEFT, TOP = 420, 210, 96, 40
MAX_DOTS, MAX_LINES = 600, 2000


def position_panel(case: Case) -> list[Shape]:
    """Shapes in a panel whose corner is (0, 0): depth on the path to the right, position upwards (first axis only)."""
    length, lineage = case.subject.length, case.lineage
    stored_T = _stored(case)
    if lineage is None and stored_T is None:
        return []
    depths_T = np.arange(length) if lineage is None else lineage.depths_T
    expected_T = depths_T if lineage is None else lineage.positions_T
    actual_T = expected_T if stored_T is None else stored_T
    wrong_T = (actual_T != expected_T) & (expected_T != UNKNOWN)
    if lineage is None:
        wrong_T[:] = False
    most_x = max(1, int(depths_T.max(initial=0)))
    most_y = max(1, int(max(actual_T.max(initial=0), expected_T.max(initial=0))))

    def place(depth: float, position: float) -> tuple[float, float]:
        return LEFT + WIDTH * depth / most_x, TOP + HEIGHT * (1 - max(0, position) / most_y)

    what = "expected positions" if stored_T is None else f"stored positions, {int(wrong_T.sum()):,} of them wrong"
    shapes: list[Shape] = [Text(x=0, y=14, text=f"Positions against depth: {what}", size=13, bold=True)]
    shapes += _axes(most_x, most_y)
    begins = case.names.starts if lineage is None else [run.start for run in lineage.runs]
    bounds = [*np.union1d(case.names.starts, begins).tolist(), length]
    for start, stop in [*pairwise(bounds)][:MAX_LINES]:
        colour = SEGMENTS[int(case.names.index(start)) % len(SEGMENTS)]
        known = np.flatnonzero(expected_T[start:stop] != UNKNOWN) + start
        if len(known) > 1:
            ends = (known[0], known[-1])
            shapes.append(
                Path(points=tuple(place(depths_T[row], expected_T[row]) for row in ends), stroke=colour, width=1)
            )
    shown = np.linspace(0, max(0, length - 1), min(length, MAX_DOTS)).astype(np.int64).tolist()
    for row in sorted({*shown, *np.flatnonzero(wrong_T)[:MAX_DOTS].tolist()}):
        x, y = place(depths_T[row], actual_T[row])
        colour = LEAK if wrong_T[row] else SEGMENTS[int(case.names.index(row)) % len(SEGMENTS)]
        title = f"{case.names.say(row)}: position {actual_T[row]}, expected {expected_T[row]}"
        shapes.append(Dot(x=x, y=y, radius=3.5 if wrong_T[row] else 2, fill=colour, title=title))
    return shapes


def _stored(case: Case) -> np.ndarray | None:
    positions = case.subject.positions
    if positions is None or positions.ids_AT.shape[-1] != case.subject.length:
        return None
    first_T: np.ndarray = positions.ids_AT[0]
    return first_T


def _axes(most_x: int, most_y: int) -> list[Shape]:
    corner, right, top = (LEFT, TOP + HEIGHT), (LEFT + WIDTH, TOP + HEIGHT), (LEFT, TOP)
    shapes: list[Shape] = [Path(points=(top, corner, right), stroke=FAINT)]
    for tick in range(0, most_y + 1, _step(most_y)):
        y = TOP + HEIGHT * (1 - tick / most_y)
        shapes.append(Path(points=((LEFT, y), (LEFT + WIDTH, y)), stroke=GRID, width=0.5))
        shapes.append(Text(x=LEFT - 6, y=y + 4, text=f"{tick:,}", size=10, fill=FAINT, anchor="end"))
    shapes.append(Text(x=LEFT, y=TOP + HEIGHT + 15, text="depth 0", size=10, fill=FAINT))
    shapes.append(Text(x=LEFT + WIDTH, y=TOP + HEIGHT + 15, text=f"{most_x:,}", size=10, fill=FAINT, anchor="end"))
    return shapes


def _step(most: int) -> int:
    """1, 2 or 5 times a power of ten: the smallest with which at most six ticks are needed."""
    power: int = 10 ** (len(str(most)) - 1)
    return next(step for step in (power // 5, power // 2, power, 2 * power) if step and most // step < 6)
