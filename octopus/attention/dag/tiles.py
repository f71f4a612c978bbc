"""Groups dealt out to programs, as flat integers: what the paged kernel reads.

A tile is some of a group's keys and some of its readers. Each of a tile's readers gets a part: attention over the
tile's keys alone, with its log-sum-exp. A second kernel joins each row's parts. Every program gets tiles of about the
same cost, one after the other, so that all end together; a group that is too much for one is cut.

Keys that lie side by side in the pool are loaded as whole blocks, without a mask, so all of a tile's readers must see
all of a block. The rest of a tile's keys are loaded one by one.

Letters: B blocks of all tiles, K single keys of all tiles, R readers of a tile, I tiles, W programs, P parts, Q queries
(a row at a shift, turned to it, once for all tiles that are cut from one), T rows of the step.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise

import numpy as np

from octopus.attention.dag.groups import Group, Reader

ITEM = ("first_block", "stop_block", "first_key", "stop_key", "first_query", "first_part", "readers")
"""Columns of a tile: blocks `[first_block, stop_block)`, single keys `[first_key, stop_key)`, and `readers` readers,
whose queries and parts follow each other from `first_query` and `first_part` on."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Costs:
    """How tiles are cut, and what they cost in the time of a block with many readers.

    Attributes:
        most_readers: Of a tile.
        few_readers: Up to so many are few.
        block: Keys of a block.
        fewest_keys: No cut leaves fewer. Of each reader and query head a part of D numbers is written and read again:
            the keys must outweigh those.
        tile: Cost of a tile beside that of its keys.
        few: Cost of a block with few readers.
        single: Cost of a key that is not in a block, in the time of one that is.
    """

    most_readers: int
    few_readers: int
    block: int
    fewest_keys: int = 256
    tile: float = 1.5
    few: float = 0.75
    single: float = 1.5


@dataclass(frozen=True, kw_only=True, eq=False)
class TilePlan:
    """All of a step's tiles.

    Attributes:
        blocks_B: int32, the slot of the first key and value of each block.
        slots_K: int64, the slot of each single key and value.
        query_row_Q, query_shift_Q: int64. The row and shift of each query.
        part_stop_P: int32, where in `slots_K` the sight of each part's reader ends.
        part_starts_T: int64, T + 1 numbers: row t has parts `parts_P[part_starts_T[t] : part_starts_T[t + 1]]`.
        parts_P: int64, numbers of parts.
        items_I7: int32, the columns `ITEM` of each tile.
        item_starts_W: int32, W + 1 numbers: program w has the tiles from its own number to the next.
    """

    blocks_B: np.ndarray
    slots_K: np.ndarray
    query_row_Q: np.ndarray
    query_shift_Q: np.ndarray
    part_stop_P: np.ndarray
    part_starts_T: np.ndarray
    parts_P: np.ndarray
    items_I7: np.ndarray
    item_starts_W: np.ndarray


@dataclass(frozen=True, kw_only=True, slots=True)
class _Tile:
    """Readers see all blocks; of the single keys reader r sees the first `sees_R[r]`."""

    blocks_B: np.ndarray
    slots_K: np.ndarray
    readers: tuple[Reader, ...]
    first_query: int
    sees_R: np.ndarray

    def cut(self, start: float, stop: float) -> _Tile:
        """From one share of its keys to another: 0 is none of them, 1 all."""
        (b0, b1), (k0, k1) = ((round(start * len(x)), round(stop * len(x))) for x in (self.blocks_B, self.slots_K))
        return _Tile(
            blocks_B=self.blocks_B[b0:b1],
            slots_K=self.slots_K[k0:k1],
            readers=self.readers,
            first_query=self.first_query,
            sees_R=self.sees_R.clip(k0, k1) - k0,
        )


def tile(groups: Sequence[Group], rows: int, *, programs: int, costs: Costs) -> TilePlan:
    """Cuts groups into tiles and deals them out.

    Args:
        groups: What is seen. Their order, and that of their readers, is that of all sums.
        rows: Rows of the step.
        programs: At most so many.
        costs: Of a tile.
    """
    whole = list(_of_groups(groups, costs))
    tiles, item_starts_W = _dealt(whole, programs, costs)
    first_block, first_key, first_part = (
        np.cumsum([0, *map(len, parts)])
        for parts in ([t.blocks_B for t in tiles], [t.slots_K for t in tiles], [t.readers for t in tiles])
    )
    queries = [reader for one in whole for reader in one.readers]
    row_P = np.array([reader.row for one in tiles for reader in one.readers], dtype=np.int64)
    first_query = [one.first_query for one in tiles]
    ends = [first_block[:-1], first_block[1:], first_key[:-1], first_key[1:]]
    items_7I = [*ends, first_query, first_part[:-1], np.diff(first_part)]
    stops = [start + one.sees_R for one, start in zip(tiles, first_key, strict=False)]
    nothing = np.empty(0, dtype=np.int64)
    return TilePlan(
        blocks_B=np.concatenate([nothing, *(one.blocks_B for one in tiles)]).astype(np.int32),
        slots_K=np.concatenate([nothing, *(one.slots_K for one in tiles)]),
        query_row_Q=np.array([reader.row for reader in queries], dtype=np.int64),
        query_shift_Q=np.array([reader.shift for reader in queries], dtype=np.int64),
        part_stop_P=np.concatenate([nothing, *stops]).astype(np.int32),
        part_starts_T=np.concatenate(([0], np.bincount(row_P, minlength=rows).cumsum())).astype(np.int64),
        parts_P=np.argsort(row_P, kind="stable"),
        items_I7=np.ascontiguousarray(np.array(items_7I, dtype=np.int32).T),
        item_starts_W=item_starts_W.astype(np.int32),
    )


def _of_groups(groups: Sequence[Group], costs: Costs) -> Iterator[_Tile]:
    """A tile for each even share of a group's readers. What only some of these see comes last, key by key."""
    shares = [(group, readers) for group in groups for readers in _shares(group.readers, costs.most_readers)]
    lengths = [np.array([reader.length for reader in readers]) for _, readers in shares]
    fulls = [int(lengths_R.min()) for lengths_R in lengths]
    first_query = 0
    in_blocks = _in_blocks([group.slots_K[:full] for (group, _), full in zip(shares, fulls, strict=True)], costs.block)
    for (group, readers), lengths_R, full, found in zip(shares, lengths, fulls, in_blocks, strict=True):
        blocks_B, slots_K = found
        seen = int(lengths_R.max())
        yield _Tile(
            blocks_B=blocks_B,
            slots_K=slots_K if seen == full else np.concatenate((slots_K, group.slots_K[full:seen])),
            readers=readers,
            first_query=first_query,
            sees_R=lengths_R + (len(slots_K) - full),
        )
        first_query += len(readers)


def _shares(readers: tuple[Reader, ...], most: int) -> Iterator[tuple[Reader, ...]]:
    """Readers in as few even shares as are needed for no more than `most` in one."""
    count, pieces = len(readers), -(-len(readers) // most)
    for piece in range(pieces):
        yield readers[piece * count // pieces : (piece + 1) * count // pieces]


def _dealt(tiles: Sequence[_Tile], programs: int, costs: Costs) -> tuple[list[_Tile], np.ndarray]:
    """The tiles laid end to end by cost and cut where one program's share ends; and where each program's begin."""
    costs_I = np.array([_cost(one, costs) for one in tiles])
    stops_I = costs_I.cumsum()
    total = float(stops_I[-1]) if tiles else 0.0
    fewest = costs.tile + costs.fewest_keys / costs.block
    programs = max(1, min(programs, int(total / fewest)))
    pieces: list[_Tile] = []
    program_I: list[int] = []
    for one, cost, stop in zip(tiles, costs_I.tolist(), stops_I.tolist(), strict=True):
        before = (stop - cost) / total * programs  # Programs, and the part of one, that are full by then.
        wide = cost / total * programs
        cuts = [0.0, *_cuts(one, before, wide, costs), 1.0]
        for start, end in pairwise(cuts):
            pieces.append(one if len(cuts) == 2 else one.cut(start, end))
            program_I.append(min(programs - 1, int(before + wide * (start + end) / 2)))
    return pieces, np.searchsorted(program_I, np.arange(programs + 1)).astype(np.int64)


def _cuts(one: _Tile, before: float, wide: float, costs: Costs) -> list[float]:
    """Where in a tile one program's share ends and the next one's begins, but for cuts that leave too few keys."""
    first, stop = int(before) + 1, math.ceil(before + wide)
    if first >= stop:
        return []
    least = costs.fewest_keys / (len(one.blocks_B) * costs.block + len(one.slots_K))
    inside = (np.arange(first, stop) - before) / wide
    return inside[(inside >= least) & (inside <= 1 - least)].tolist()  # type: ignore[no-any-return]


def _cost(one: _Tile, costs: Costs) -> float:
    blocks = len(one.blocks_B) + costs.single * len(one.slots_K) / costs.block
    return costs.tile + blocks * (costs.few if len(one.readers) <= costs.few_readers else 1.0)


def _in_blocks(lines: Sequence[np.ndarray], block: int) -> list[tuple[np.ndarray, np.ndarray]]:
    """Of each line of slots the first ones of whole blocks that follow each other, and the slots that are left.

    All lines at once: a step has many short ones.
    """
    if not lines:
        return []
    slots_K = np.concatenate(lines)
    line_starts = np.cumsum([0, *map(len, lines[:-1])])
    breaks_K = np.ones(len(slots_K), dtype=bool)
    np.not_equal(slots_K[1:] - slots_K[:-1], 1, out=breaks_K[1:])
    breaks_K[line_starts] = True
    starts = np.flatnonzero(breaks_K)  # Of runs of slots that follow each other.
    lengths = np.diff(starts, append=len(slots_K))
    blocks = lengths // block
    firsts, whole = slots_K[starts], blocks * block
    first_runs = np.searchsorted(starts, line_starts[1:])
    in_blocks = _counted(firsts, blocks, block, first_runs)
    return list(zip(in_blocks, _counted(firsts + whole, lengths - whole, 1, first_runs), strict=True))


def _counted(firsts: np.ndarray, counts: np.ndarray, step: int, cuts: np.ndarray) -> list[np.ndarray]:
    """`counts[i]` numbers from `firsts[i]` on, `step` apart, for every i; cut before those of each i in `cuts`."""
    stops = counts.cumsum()
    before = stops - counts
    numbers = np.repeat(firsts - step * before, counts) + step * np.arange(stops[-1])
    at = before[cuts].tolist()
    return [numbers[start:stop] for start, stop in pairwise([0, *at, len(numbers)])]
