"""Slices cut into tiles, and for each tile the stretches of the other side that it has to do with.

In the forward pass and for the gradient of queries a tile owns query rows and runs over keys; for the gradients of keys
and values it owns key rows and runs over queries. Both are the same lowering: turned around, a causal slice is a
mirrored one. Cells of a tile are (own row o, other row x); a span shows other rows `[x0, x1)` to own rows `[o0, o1)`,
as far as `low <= x - o <= high`:

    a rectangle   low, high = -FAR, FAR        causal   high = k0 - q0        mirrored   low = k0 - q0

A span whose cells are all visible to the whole tile is full: it needs no mask but for its last block.

Letters: N tiles, S spans.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from octopus.attention.plan import Slice

FAR = 1 << 40
"""Further apart than any two rows."""

SPAN = ("x0", "x1", "o0", "o1", "low", "high", "full")


@dataclass(frozen=True, kw_only=True, eq=False)
class SpanTable:
    """Tiles and their spans.

    Attributes:
        tiles_N4: int64, first own row, stop own row, first span, stop span; the tile with the most cells first.
        spans_S7: int64, the columns `SPAN`; of a tile the full ones first.
    """

    tiles_N4: np.ndarray
    spans_S7: np.ndarray


def turned(slices: Sequence[Slice]) -> list[Slice]:
    """The slices with queries and keys exchanged."""
    return [
        replace(s, q0=s.k0, q1=s.k1, k0=s.q0, k1=s.q1, causal=s.mirrored, mirrored=s.causal) for s in slices
    ]


def span_table(slices: Sequence[Slice], length: int, rows: int, *, most_cells: int) -> SpanTable:
    """Cuts the own side (the `q` of the slices) into tiles of at most `rows` rows and finds their spans.

    Args:
        slices: Who sees whom, each pair once. Shifts mean nothing here.
        length: Number of own rows.
        rows: Most rows of a tile.
        most_cells: Most cells of a tile; where there are more, several tiles own the same rows.
    """
    box_S6 = np.array([(s.q0, s.q1, s.k0, s.k1, s.causal, s.mirrored) for s in slices], dtype=np.int64).reshape(-1, 6)
    edges = _edges(box_S6, length, rows)
    tiles_N4, spans_S7 = _dealt(edges, *_spans(box_S6, edges), most_cells=most_cells)
    return SpanTable(tiles_N4=tiles_N4, spans_S7=spans_S7)


def _edges(box_S6: np.ndarray, length: int, rows: int) -> np.ndarray:
    """Where tiles begin, and the length: cut at the ends of long stretches; short neighbours share a tile."""
    cuts = np.unique(np.concatenate((box_S6[:, 0], box_S6[:, 1], [0, length])))
    edges = [0]
    for start, stop in zip(cuts[:-1].tolist(), cuts[1:].tolist(), strict=True):
        if stop - start >= rows // 2 and start != edges[-1]:
            edges.append(start)
        while stop - edges[-1] > rows:
            edges.append(edges[-1] + rows if start <= edges[-1] else start)
    return np.array([*edges, length] if length else [0], dtype=np.int64)


def _spans(box_S6: np.ndarray, edges: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Every slice cut at the tiles' edges, and into what all of a tile sees and the rest.

    Returns:
        Spans [S, 7] and the tile of each.
    """
    first = np.searchsorted(edges, box_S6[:, 0], side="right") - 1
    last = np.searchsorted(edges, box_S6[:, 1], side="left")
    counts = np.where(box_S6[:, 1] > box_S6[:, 0], last - first, 0)
    which = np.repeat(np.arange(len(box_S6)), counts)
    tile = np.repeat(first - np.concatenate(([0], counts.cumsum()[:-1])), counts) + np.arange(len(which))
    q0, q1, k0, k1, causal, mirrored = box_S6[which].T
    t0, t1 = edges[tile], edges[tile + 1]
    o0, o1 = np.maximum(q0, t0), np.minimum(q1, t1)
    covers = (o0 == t0) & (o1 == t1)
    # What the first and the last of the own rows see.
    x0, x1 = np.where(mirrored, k0 + o0 - q0, k0), np.where(causal, k0 + o1 - q0, k1)
    full0, full1 = np.where(mirrored, k0 + o1 - 1 - q0, k0), np.where(causal, k0 + o0 - q0 + 1, k1)
    full0, full1 = np.where(covers, full0, x1), np.where(covers, np.minimum(full1, x1), x1)
    full0 = np.minimum(full0, full1)
    low, high = np.where(mirrored, k0 - q0, -FAR), np.where(causal, k0 - q0, FAR)
    yes, no = np.ones_like(tile), np.zeros_like(tile)
    pieces = [
        (tile, full0, full1, o0, o1, -FAR * yes, FAR * yes, yes),
        (tile, x0, full0, o0, o1, low, high, no),
        (tile, full1, x1, o0, o1, low, high, no),
    ]
    joined = np.concatenate([np.stack(piece, axis=1) for piece in pieces])
    joined = joined[joined[:, 1] < joined[:, 2]]
    order = np.lexsort((joined[:, 1], 1 - joined[:, 7], joined[:, 0]))
    return _touching(joined[order])


def _touching(spans_S8: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Joins full spans of one tile whose other rows touch."""
    if not len(spans_S8):
        return spans_S8[:, 1:], spans_S8[:, 0]
    before, after = spans_S8[:-1], spans_S8[1:]
    goes_on = (before[:, 0] == after[:, 0]) & (before[:, 2] == after[:, 1])
    goes_on &= (before[:, 7] == 1) & (after[:, 7] == 1)
    starts = np.flatnonzero(np.concatenate(([True], ~goes_on)))
    stops = np.concatenate((starts[1:], [len(spans_S8)])) - 1
    joined = spans_S8[starts].copy()
    joined[:, 2] = spans_S8[stops, 2]
    return joined[:, 1:], joined[:, 0]


def _dealt(
    edges: np.ndarray, spans_S7: np.ndarray, tile_S: np.ndarray, *, most_cells: int
) -> tuple[np.ndarray, np.ndarray]:
    """Spans dealt out to tiles; own rows that nobody deals with get a tile without spans."""
    rows = np.diff(edges)
    spans_S7, tile_S = _chopped(spans_S7, tile_S, rows, most_cells)
    cells = (spans_S7[:, 1] - spans_S7[:, 0]) * rows[tile_S]
    new = np.ones(len(tile_S), dtype=bool)
    new[1:] = tile_S[1:] != tile_S[:-1]
    before = cells.cumsum() - cells
    begun = np.maximum.accumulate(np.where(new, before, 0))
    chunk = (before - begun) // most_cells
    new[1:] |= chunk[1:] != chunk[:-1]
    starts = np.flatnonzero(new)
    stops = np.concatenate((starts[1:], [len(tile_S)]))
    owner = tile_S[starts]
    idle = np.setdiff1d(np.arange(len(rows)), owner)
    owner = np.concatenate((owner, idle))
    starts, stops = (np.concatenate((x, np.zeros_like(idle))) for x in (starts, stops))
    tiles = np.stack((edges[owner], edges[owner + 1], starts, stops), axis=1).astype(np.int64).reshape(-1, 4)
    sums = np.concatenate(([0], cells.cumsum()))
    longest_first = np.argsort(sums[starts] - sums[stops], kind="stable")
    return tiles[longest_first], np.ascontiguousarray(spans_S7)


def _chopped(
    spans_S7: np.ndarray, tile_S: np.ndarray, rows: np.ndarray, most_cells: int
) -> tuple[np.ndarray, np.ndarray]:
    """Cuts spans evenly into pieces of at most `most_cells` cells."""
    width = spans_S7[:, 1] - spans_S7[:, 0]
    pieces = -(-(width * rows[tile_S]) // most_cells)
    if not (pieces > 1).any():
        return spans_S7, tile_S
    which = np.repeat(np.arange(len(width)), pieces)
    number = np.arange(len(which)) - np.repeat(pieces.cumsum() - pieces, pieces)
    cut = spans_S7[which].copy()
    cut[:, 0] = spans_S7[which, 0] + number * width[which] // pieces[which]
    cut[:, 1] = spans_S7[which, 0] + (number + 1) * width[which] // pieces[which]
    return cut, tile_S[which]
