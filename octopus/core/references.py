"""The lengths at which others stand on a segment."""

from __future__ import annotations

from collections.abc import Iterator
from heapq import heappop, heappush

_SLACK = 16  # How many lengths that have gone the heap may name besides as many as are left.


class LengthMultiset:
    """A multiset of integers with its maximum. Takes O(log distinct) a call, amortised, and O(distinct) memory."""

    __slots__ = ("_counts", "_heap", "_size")

    def __init__(self) -> None:
        self._counts: dict[int, int] = {}
        self._heap: list[int] = []  # Negated; may name lengths that have gone.
        self._size = 0

    def add(self, length: int) -> None:
        """Adds `length` once."""
        if length not in self._counts:
            heappush(self._heap, -length)
        self._counts[length] = self._counts.get(length, 0) + 1
        self._size += 1

    def remove(self, length: int) -> None:
        """Takes `length` out once. Raises KeyError if it is not there: a count is never clamped."""
        count = self._counts[length]
        self._size -= 1
        if count > 1:
            self._counts[length] = count - 1
            return
        del self._counts[length]
        while self._heap and -self._heap[0] not in self._counts:
            heappop(self._heap)
        if len(self._heap) > 2 * len(self._counts) + _SLACK:
            self._heap = sorted(-length for length in self._counts)

    def count(self, length: int) -> int:
        """How often `length` is in."""
        return self._counts.get(length, 0)

    def between(self, start: int, stop: int) -> list[int]:
        """The distinct lengths strictly between `start` and `stop`, ascending."""
        return sorted(length for length in self._counts if start < length < stop)

    @property
    def maximum(self) -> int:
        """The largest length, -1 when empty."""
        return -self._heap[0] if self._heap else -1

    def __len__(self) -> int:
        return self._size

    def __iter__(self) -> Iterator[int]:
        for length, count in self._counts.items():
            for _ in range(count):
                yield length
