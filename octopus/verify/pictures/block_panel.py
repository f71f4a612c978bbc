"""The blocks that a kernel visits: how full each is, and how much of the work is for pairs that nobody sees."""

from __future__ import annotations

import numpy as np

from octopus.verify.case import Case
from octopus.verify.facets import BlockTable
from octopus.verify.pairs import Pairs
from octopus.verify.pictures.counting import tile_areas, tile_counts
from octopus.verify.pictures.scene import (
    FAINT,
    GRID,
    HALF,
    HIDDEN,
    LEAK,
    SEEN,
    WASTE,
    Box,
    Raster,
    Shape,
    Text,
    rgb,
)

SIZE, LEFT, TOP = 420, 20, 46
USUAL_BLOCK = 128
MIN_BLOCKS = 8


def block_panel(case: Case, seen: Pairs) -> list[Shape]:
    """Shapes in a panel whose corner is (0, 0). Without a table the blocks that hold a visible pair are visited."""
    length, table = case.subject.length, case.subject.blocks
    block_q, block_k = _block_size(length, table)
    visible = tile_counts(seen, block_q, block_k)
    areas = tile_areas(length, block_q, block_k)
    visited = visible > 0 if table is None else _visited(table, visible.shape)
    work = int(areas[visited].sum())
    waste = 1 - visible[visited].sum() / work if work else 0.0
    blocks = f"{int(visited.sum()):,} of {visited.size:,} visited, {waste:.0%} of their pairs wasted"
    source = "by the table" if table is not None else "where anything is visible"
    rows, columns = visible.shape
    # The last blocks may reach past the row.
    size = SIZE / max(1, rows * block_q, columns * block_k)
    return [
        Text(x=0, y=14, text=f"Blocks: {blocks}", size=13, bold=True),
        Text(x=0, y=30, text=f"blocks of {block_q} x {block_k} pairs, visited {source}", size=10, fill=FAINT),
        Raster(
            x=LEFT, y=TOP, width=columns * block_k * size, height=rows * block_q * size,
            rgb=_cells(visible, areas, visited),
        ),
        Box(x=LEFT, y=TOP, width=columns * block_k * size, height=rows * block_q * size, stroke=FAINT),
        *_legend(table is not None),
    ]  # fmt: skip


def _block_size(length: int, table: BlockTable | None) -> tuple[int, int]:
    if table is not None:
        return table.block_q, table.block_k
    block = USUAL_BLOCK if length >= MIN_BLOCKS * USUAL_BLOCK else max(1, length // MIN_BLOCKS)
    return block, block


def _visited(table: BlockTable, shape: tuple[int, ...]) -> np.ndarray:
    """The blocks that the table lists; entries that lead outside are OCT107's business."""
    visited = np.zeros(shape, dtype=bool)
    lists = [(table.partial_count_R, table.partial_RC)]
    if table.full_count_R is not None and table.full_RC is not None:
        lists.append((table.full_count_R, table.full_RC))
    for counts, indices in lists:
        for row in range(min(len(counts), shape[0])):
            columns = indices[row, : max(0, int(counts[row]))]
            visited[row, columns[(columns >= 0) & (columns < shape[1])]] = True
    return visited


def _cells(visible: np.ndarray, areas: np.ndarray, visited: np.ndarray) -> np.ndarray:
    share = visible / np.maximum(areas, 1)
    scale = np.array([rgb(WASTE), rgb(HALF), rgb(SEEN)])
    shades = np.stack([np.interp(share, (0, 0.5, 1), scale[:, channel]) for channel in range(3)], axis=-1)
    colours = np.where(visited[..., None], shades, np.array(rgb(HIDDEN)))
    colours[~visited & (visible > 0)] = rgb(LEAK)
    return colours.round().astype(np.uint8)


def _legend(tabled: bool) -> list[Shape]:
    entries = [(SEEN, "full"), (HALF, "half full"), (WASTE, "nearly empty"), (HIDDEN, "skipped")]
    if tabled:
        entries.append((LEAK, "skipped, but something is visible"))
    shapes: list[Shape] = []
    x: float = LEFT
    for colour, text in entries:
        shapes.append(Box(x=x, y=TOP + SIZE + 10, width=10, height=10, fill=colour, stroke=GRID))
        shapes.append(Text(x=x + 15, y=TOP + SIZE + 19, text=text, size=10, fill=FAINT))
        x += 32 + 5.6 * len(text)
    return shapes
