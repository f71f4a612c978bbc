"""The mask as cells: what is seen, what should not be, what is missing; named segments along both sides."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise

import numpy as np

from octopus.verify.case import Case
from octopus.verify.findings import Finding
from octopus.verify.pairs import Pairs
from octopus.verify.pictures.counting import tile_areas, tile_counts
from octopus.verify.pictures.scene import (
    FAINT,
    GRID,
    HIDDEN,
    INK,
    LEAK,
    MISSING,
    PAPER,
    SEEN,
    SEGMENTS,
    THIN,
    Box,
    Dot,
    Path,
    Raster,
    Shape,
    Text,
    fitted,
    rgb,
)

SIZE, LEFT, TOP = 420, 96, 46
MAX_CELLS = 420
LABEL_ROOM = 11
NOTICED = 4
"""Pixels: a cell that is smaller is not."""


def mask_panel(case: Case, seen: Pairs, findings: Sequence[Finding]) -> list[Shape]:
    """Shapes in a panel whose corner is (0, 0). One cell a pair, or one a tile where the row is long."""
    length = case.subject.length
    tile = -(-length // MAX_CELLS)
    shapes: list[Shape] = [Text(x=0, y=14, text=_title(case, seen), size=13, bold=True)]
    each = "one cell a pair" if tile == 1 else f"one cell {tile} x {tile} pairs"
    shapes.append(Text(x=LEFT + SIZE, y=TOP - 14, text=each, size=10, fill=FAINT, anchor="end"))
    cells = _cells(case, seen, tile)
    extent = cells.shape[0] * tile * _scale(length)  # The last tile may reach past the row.
    shapes.append(Raster(x=LEFT, y=TOP, width=extent, height=extent, rgb=cells))
    shapes += _segments(case)
    shapes += [shape for finding in findings for shape in _mark(finding, length)]
    shapes.append(Box(x=LEFT, y=TOP, width=SIZE, height=SIZE, stroke=FAINT))
    shapes += _legend(case.expected is not None)
    return shapes


def _scale(length: int) -> float:
    return SIZE / max(1, length)


def _title(case: Case, seen: Pairs) -> str:
    return f"Mask: {case.subject.length:,} tokens, {seen.count:,} visible pairs"


def _cells(case: Case, seen: Pairs, tile: int) -> np.ndarray:
    """Colours: the darker the more is visible; a tile with one wrong pair shows it."""
    areas = np.maximum(tile_areas(case.subject.length, tile, tile), 1)
    share = (tile_counts(seen, tile, tile) / areas)[..., None]
    low, high = np.array(rgb(HIDDEN)), np.array(rgb(SEEN))
    colours = low + (high - low) * np.where(share > 0, 0.25 + 0.75 * share, 0)
    if case.expected is not None and case.allowed is not None:
        colours[tile_counts(case.expected - seen, tile, tile) > 0] = rgb(MISSING)
        colours[tile_counts(case.judged(seen) - case.allowed, tile, tile) > 0] = rgb(LEAK)
    cells: np.ndarray = colours.round().astype(np.uint8)
    return cells


def _segments(case: Case) -> list[Shape]:
    """Lines between segments, their names on the left, their colours along the top; none thinner than THIN."""
    length, scale = case.subject.length, _scale(case.subject.length)
    bounds = [*case.names.starts.tolist(), length]
    shapes: list[Shape] = [Text(x=LEFT, y=TOP - 14, text="keys", size=10, fill=FAINT)]
    shapes.append(Text(x=LEFT - 12, y=TOP - 14, text="queries", size=10, fill=FAINT, anchor="end"))
    for index, (start, stop) in enumerate(pairwise(bounds)):
        name, colour = case.names.names[index], SEGMENTS[index % len(SEGMENTS)]
        at, size = start * scale, (stop - start) * scale
        if size < THIN:
            continue
        title = f"{name}: rows {start} to {stop - 1}"
        shapes.append(Box(x=LEFT - 8, y=TOP + at, width=6, height=size, fill=colour, title=title))
        shapes.append(Box(x=LEFT + at, y=TOP - 8, width=size, height=6, fill=colour, title=title))
        if size >= LABEL_ROOM:
            label = fitted(name, LEFT - 14, 11)
            shapes.append(Text(x=LEFT - 12, y=TOP + at + size / 2 + 4, text=label, size=11, fill=INK, anchor="end"))
        if index:
            shapes.append(Path(points=((LEFT, TOP + at), (LEFT + SIZE, TOP + at)), stroke=GRID, width=0.5))
            shapes.append(Path(points=((LEFT + at, TOP), (LEFT + at, TOP + SIZE)), stroke=GRID, width=0.5))
    return shapes


def _mark(finding: Finding, length: int) -> list[Shape]:
    """A ring around the smallest witness of what is wrong with the mask, and its code beside it.

    A cell too small to be noticed gets a dot of its colour.
    """
    witness = finding.witness
    if not finding.code.startswith("OCT1") or witness is None or witness.query is None or witness.key is None:
        return []
    x, y = LEFT + (witness.key + 0.5) * _scale(length), TOP + (witness.query + 0.5) * _scale(length)
    radius = max(5.0, 0.4 * _scale(length))
    colour = (MISSING if finding.code == "OCT102" else LEAK) if _scale(length) < NOTICED else None
    dot = [Dot(x=x, y=y, radius=2, fill=colour)] if colour else []
    ring = Dot(x=x, y=y, radius=radius, stroke=INK, title=f"{finding.code}: {finding.message}")
    label = fitted(finding.code, 60, 10)
    behind = Box(x=x + radius + 2, y=y - 7, width=46, height=14, fill=PAPER, stroke=GRID)
    return [*dot, ring, behind, Text(x=x + radius + 5, y=y + 4, text=label, size=10, fill=INK)]


def _legend(judged: bool) -> list[Shape]:
    entries = [(SEEN, "visible"), (HIDDEN, "hidden")]
    if judged:
        entries += [(LEAK, "visible, must not be"), (MISSING, "hidden, must not be")]
    shapes: list[Shape] = []
    x: float = LEFT
    for colour, text in entries:
        shapes.append(Box(x=x, y=TOP + SIZE + 10, width=10, height=10, fill=colour, stroke=GRID))
        shapes.append(Text(x=x + 15, y=TOP + SIZE + 19, text=text, size=10, fill=FAINT))
        x += 32 + 5.6 * len(text)
    return shapes
