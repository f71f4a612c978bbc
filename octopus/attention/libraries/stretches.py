"""The row cut wherever a slice begins or ends: stretches of rows that the same slices show their keys to."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise


@dataclass(frozen=True, kw_only=True)
class Stretch:
    """Rows `[start, stop)` and the numbers of the spans that cover all of them."""

    start: int
    stop: int
    spans: tuple[int, ...]


def stretches(length: int, spans: Sequence[tuple[int, int]]) -> Iterator[Stretch]:
    """Cuts `[0, length)` so that each piece lies inside or outside of each span; spans are numbered in their order."""
    begin: dict[int, list[int]] = defaultdict(list)
    end: dict[int, list[int]] = defaultdict(list)
    for number, (start, stop) in enumerate(spans):
        if start < stop:
            begin[start].append(number)
            end[stop].append(number)
    active: dict[int, None] = {}
    for start, stop in pairwise(sorted({0, length, *begin, *end})):
        for number in end[start]:
            del active[number]
        active.update(dict.fromkeys(begin[start]))
        yield Stretch(start=start, stop=stop, spans=tuple(active))
