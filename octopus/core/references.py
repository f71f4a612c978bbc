"""The lengths at which others stand on a segment."""

from __future__ import annotations

from collections.abc import Iterator
from heapq import heappop, heappush

from octopus.core.errors import invariant

_SLACK = 16  # How many lengths that have gone the heap may name besides as many as are left.


class LengthCounts:
    """A multiset of integers. O(1) a call.

    Attributes:
        counts: How often each is in.
        size: How many there are in all.
    """

    __slots__ = ("counts", "size")

    def __init__(self) -> None:
        self.counts: dict[int, int] = {}
        self.size = 0

    def add(self, length: int, times: int = 1) -> None:
        """Adds `length`, `times` over."""
        counts = self.counts
        counts[length] = counts.get(length, 0) + times
        self.size += times

    def remove(self, length: int) -> None:
        """Takes `length` out once. Raises KeyError if it is not there: a count is never clamped."""
        count = self.counts[length]
        self.size -= 1
        if count > 1:
            self.counts[length] = count - 1
        else:
            del self.counts[length]

    def count(self, length: int) -> int:
        """How often `length` is in."""
        return self.counts.get(length, 0)

    def distinct(self) -> list[int]:
        """The distinct lengths, in no order."""
        return list(self.counts)

    def agrees_with(self, counts: dict[int, int]) -> bool:
        """Whether it says of every length what `counts` says."""
        return self.counts == counts and self.size == sum(counts.values())

    def between(self, start: int, stop: int) -> list[int]:
        """The distinct lengths strictly between `start` and `stop`, ascending."""
        return sorted(length for length in self.counts if start < length < stop)

    def __len__(self) -> int:
        return self.size

    def __iter__(self) -> Iterator[int]:
        for length, count in self.counts.items():
            for _ in range(count):
                yield length


class LengthMultiset(LengthCounts):
    """A multiset of integers with its maximum. O(log distinct) a call, amortised, and O(distinct) memory."""

    __slots__ = ("_heap",)

    def __init__(self) -> None:
        self.counts = {}
        self.size = 0
        self._heap: list[int] = []  # Negated; may name lengths that have gone.

    def add(self, length: int, times: int = 1) -> None:
        """Adds `length`, `times` over."""
        counts = self.counts
        if length in counts:
            counts[length] += times
        else:
            heappush(self._heap, -length)
            counts[length] = times
        self.size += times

    def remove(self, length: int) -> None:
        """Takes `length` out once. Raises KeyError if it is not there: a count is never clamped."""
        count = self.counts[length]
        self.size -= 1
        if count > 1:
            self.counts[length] = count - 1
            return
        del self.counts[length]
        while self._heap and -self._heap[0] not in self.counts:
            heappop(self._heap)
        if len(self._heap) > 2 * len(self.counts) + _SLACK:
            self._heap = sorted(-length for length in self.counts)

    @property
    def maximum(self) -> int:
        """The largest length, -1 when empty."""
        return -self._heap[0] if self._heap else -1


class _Nobody(LengthMultiset):
    """The empty multiset that segments share until somebody stands on them."""

    def add(self, length: int, times: int = 1) -> None:
        """Refuses: what is shared must stay empty."""
        invariant(False, f"length {length} added to the multiset of nobody")


NOBODY = _Nobody()
"""Stands for an empty multiset; whoever adds makes a new one first."""

NO_COUNTS: LengthCounts = NOBODY
"""The same, where no maximum is asked for."""
