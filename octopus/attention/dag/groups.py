"""Stored keys grouped by who sees them: what is read once and used by all of its readers.

Rows see stretches of segments, each with its own shift. Every segment is cut wherever somebody's sight of it begins or
ends; the pieces that the same rows see with the same shifts are one group. Rows a and b see a prompt of 100 tokens,
row c, which forked off earlier, only 60 of it, and each sees a segment of its own:

    {a, b, c}  prompt [0, 60)        {a, b}  prompt [60, 100)        {a}  {b}  {c}  their own

Letters: K slots of a group.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Hashable, Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import NamedTuple

import numpy as np

SlotsOf = Callable[[Hashable, int, int], np.ndarray]
"""The slots of tokens `[start, stop)` of a segment."""


class Sight(NamedTuple):
    """Rows `[row, row + rows)` see tokens `[start, stop)` of a segment at their own position plus `shift`.

    Of a causal sight the last `rows` tokens are the rows themselves: row i sees all but the last `rows - 1 - i`.
    """

    segment: Hashable
    start: int
    stop: int
    shift: int
    row: int
    rows: int
    causal: bool = False


class Reader(NamedTuple):
    """Row `row` sees the first `length` keys of a group, at their own position plus `shift`."""

    row: int
    shift: int
    length: int


@dataclass(frozen=True, kw_only=True, slots=True)
class Group:
    """Keys that lie in `slots_K`, and who sees how many of them, in the order of rows."""

    slots_K: np.ndarray
    readers: tuple[Reader, ...]


def groups(sights: Sequence[Sight], slots_of: SlotsOf) -> list[Group]:
    """Groups what rows see: each pair of a row and a key is in exactly one group, as often as it is in the sights."""
    by_segment: defaultdict[Hashable, list[Sight]] = defaultdict(list)
    for sight in sights:
        by_segment[sight.segment].append(sight)
    alike: defaultdict[tuple[tuple[int, int], ...], list[np.ndarray]] = defaultdict(list)
    uneven: list[Group] = []
    for segment, seen in by_segment.items():
        for start, stop, readers in _pieces(seen):
            slots_K = slots_of(segment, start, stop)
            if all(reader.length == stop - start for reader in readers):
                alike[tuple((reader.row, reader.shift) for reader in readers)].append(slots_K)
            else:
                uneven.append(Group(slots_K=slots_K, readers=readers))
    return uneven + [_joined(readers, pieces) for readers, pieces in alike.items()]


def _joined(readers: tuple[tuple[int, int], ...], pieces: list[np.ndarray]) -> Group:
    slots_K = pieces[0] if len(pieces) == 1 else np.concatenate(pieces)
    return Group(slots_K=slots_K, readers=tuple(Reader(row, shift, len(slots_K)) for row, shift in readers))


def _pieces(sights: list[Sight]) -> Iterator[tuple[int, int, tuple[Reader, ...]]]:
    """One segment, cut where a sight begins, ends, or turns causal: the pieces that somebody sees."""
    cuts = {cut for sight in sights for cut in (sight.start, _turn(sight), sight.stop)}
    for start, stop in pairwise(sorted(cuts)):
        covering = [sight for sight in sights if sight.start <= start and stop <= sight.stop]
        readers = sorted(reader for sight in covering for reader in _readers(sight, start, stop))
        if readers:
            yield start, stop, tuple(readers)


def _turn(sight: Sight) -> int:
    """The first token that not every row of the sight sees."""
    return sight.stop - sight.rows + 1 if sight.causal else sight.stop


def _readers(sight: Sight, start: int, stop: int) -> Iterator[Reader]:
    for i in range(sight.rows):
        end = sight.stop - (sight.rows - 1 - i) if sight.causal else sight.stop
        if end > start:
            yield Reader(sight.row + i, sight.shift, min(end, stop) - start)
