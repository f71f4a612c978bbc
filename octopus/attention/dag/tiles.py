"""Groups cut into the work of single programs, as flat integers: what the paged kernel reads.

A tile is a stretch of a group's keys and some of its readers. Each of a tile's readers gets a part: attention over the
tile's keys alone, with its log-sum-exp. A second kernel joins each row's parts.

Letters: K slots of all groups, R readers of all tiles, I tiles, P parts, T rows of the step, V views (distinct pairs of
a row and a shift, each a rotation of the row's query).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import accumulate

import numpy as np

from octopus.attention.dag.groups import Group, Reader

ITEM = ("first_key", "stop_key", "full_stop", "first_reader", "readers")
"""Columns of a tile: keys `[first_key, stop_key)`, of which all readers see those before `full_stop`; readers
`[first_reader, first_reader + readers)`, whose parts have the same numbers."""


@dataclass(frozen=True, kw_only=True, eq=False)
class TilePlan:
    """All of a step's tiles.

    Attributes:
        slots_K: int64, where each key and value lies.
        reader_view_R, reader_stop_R: int64. Of each reader its view, and where in `slots_K` its sight ends.
        view_row_V, view_shift_V: int64. The row and shift of each view.
        part_starts_T: int64, T + 1 numbers: row t has parts `parts_P[part_starts_T[t] : part_starts_T[t + 1]]`.
        parts_P: int64, numbers of readers.
        items_I5: int64, the columns `ITEM` of each tile; the one with the most keys first.
    """

    slots_K: np.ndarray
    reader_view_R: np.ndarray
    reader_stop_R: np.ndarray
    view_row_V: np.ndarray
    view_shift_V: np.ndarray
    part_starts_T: np.ndarray
    parts_P: np.ndarray
    items_I5: np.ndarray


@dataclass(frozen=True, kw_only=True, slots=True)
class _Tile:
    first_key: int
    stop_key: int
    full_stop: int
    readers: tuple[Reader, ...]
    base: int  # Of the readers' lengths, in slots.


def tile(groups: Sequence[Group], rows: int, *, most_readers: int, most_keys: int) -> TilePlan:
    """Cuts groups into tiles.

    Args:
        groups: What is seen. Their order, and that of their readers, is that of all sums.
        rows: Rows of the step.
        most_readers, most_keys: Of a tile.
    """
    starts = [0, *accumulate(len(group.slots_K) for group in groups)]
    tiles: list[tuple[_Tile, int]] = []
    readers: list[tuple[Reader, int]] = []
    for group, start in zip(groups, starts, strict=False):
        for one in _cut(group, start, most_readers, most_keys):
            tiles.append((one, len(readers)))
            readers += [(reader, one.base) for reader in one.readers]
    views: dict[tuple[int, int], int] = {}
    view_R = [views.setdefault((reader.row, reader.shift), len(views)) for reader, _ in readers]
    row_R = np.array([reader.row for reader, _ in readers], dtype=np.int64)
    return TilePlan(
        slots_K=np.concatenate([group.slots_K for group in groups] or [np.empty(0, dtype=np.int64)]),
        reader_view_R=np.array(view_R, dtype=np.int64),
        reader_stop_R=np.array([base + reader.length for reader, base in readers], dtype=np.int64),
        view_row_V=np.array([row for row, _ in views], dtype=np.int64),
        view_shift_V=np.array([shift for _, shift in views], dtype=np.int64),
        part_starts_T=np.concatenate(([0], np.bincount(row_R, minlength=rows).cumsum())).astype(np.int64),
        parts_P=np.argsort(row_R, kind="stable"),
        items_I5=_items(tiles),
    )


def _cut(group: Group, start: int, most_readers: int, most_keys: int) -> Iterator[_Tile]:
    """Even cuts, so that no tile is a small rest: 9 keys of at most 8 are 5 and 4."""
    for low, high in _even(len(group.readers), most_readers):
        readers = group.readers[low:high]
        seen = max(reader.length for reader in readers)
        for first, stop in _even(seen, most_keys):
            some = tuple(reader for reader in readers if reader.length > first)
            yield _Tile(
                first_key=start + first,
                stop_key=start + stop,
                full_stop=start + min([stop, *(reader.length for reader in some)]),
                readers=some,
                base=start,
            )


def _even(count: int, most: int) -> Iterator[tuple[int, int]]:
    pieces = -(-count // most)
    for piece in range(pieces):
        yield piece * count // pieces, (piece + 1) * count // pieces


def _items(placed: list[tuple[_Tile, int]]) -> np.ndarray:
    longest_first = sorted(placed, key=lambda pair: pair[0].first_key - pair[0].stop_key)
    items = [
        (one.first_key, one.stop_key, one.full_stop, number, len(one.readers)) for one, number in longest_first
    ]
    return np.array(items, dtype=np.int64).reshape(-1, len(ITEM))
