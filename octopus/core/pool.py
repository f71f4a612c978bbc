"""A pool of equal physical units (pages, or recurrent-state slots), handed out by generation-checked handles."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from octopus.core.errors import CapacityExceeded, DoubleRelease, StaleHandle, invariant

_UNIT_BITS = 32
_UNIT_MASK = (1 << _UNIT_BITS) - 1

NO_PAGE = -1
"""Stands in a segment's page list where a page was given back."""


def unit_of(handle: int) -> int:
    """The physical unit a handle names, unchecked: for code that has just been given the handle."""
    return handle & _UNIT_MASK


class Pool:
    """A free list, an allocated bitmap and a generation for each unit.

    A handle is an integer that names the unit and its generation. The generation rises at every release, so a handle
    kept for too long is told from the unit's new owner. No tensors here: units are row numbers of a storage.
    """

    __slots__ = ("_allocated", "_free", "_generation", "capacity", "noun")

    def __init__(self, capacity: int, *, noun: str = "pages") -> None:
        """A pool of `capacity` free units; `noun` names them in messages. Raises ValueError below one unit."""
        if capacity < 1:
            raise ValueError(f"a pool needs at least 1 of its {noun}, got {capacity}")
        self.capacity = capacity
        self.noun = noun
        self._free = list(range(capacity - 1, -1, -1))
        self._allocated = bytearray(capacity)
        self._generation = [0] * capacity

    @property
    def free(self) -> int:
        """Number of free units."""
        return len(self._free)

    @property
    def used(self) -> int:
        """Number of allocated units."""
        return self.capacity - len(self._free)

    def allocate(self, count: int) -> list[int]:
        """Handles of `count` units, [] for 0. Raises CapacityExceeded, changing nothing, if fewer are free."""
        if count < 0:
            raise ValueError(f"cannot allocate {count} {self.noun}; the number is 0 or more")
        if count == 0:
            return []
        free = self._free
        if count > len(free):
            raise CapacityExceeded(f"need {count} {self.noun}, {len(free)} of {self.capacity} are free")
        units = free[-count:]
        del free[-count:]
        allocated, generation = self._allocated, self._generation
        for unit in units:
            allocated[unit] = 1
        return [generation[unit] << _UNIT_BITS | unit for unit in units]

    def release(self, handles: Sequence[int]) -> None:
        """Gives units back. Raises DoubleRelease or StaleHandle, changing nothing, if any handle is not current."""
        for handle in handles:
            if not self._current(handle):
                raise self._refusal(handle)
        units = [handle & _UNIT_MASK for handle in handles]
        if len(set(units)) != len(units):
            raise DoubleRelease(f"one release names the same of its {self.noun} twice: {sorted(units)}")
        for unit in units:
            self._allocated[unit] = 0
            self._generation[unit] += 1
        self._free += units

    def unit(self, handle: int) -> int:
        """The physical unit of a current handle. Raises StaleHandle otherwise."""
        unit = handle & _UNIT_MASK
        if not self._current(handle):
            raise StaleHandle(
                f"handle {handle:#x} is not current: unit {unit} of the {self.noun} has moved on; it was given back"
            )
        return unit

    def check(self, owned: Iterable[int]) -> None:
        """Conservation: free and allocated units are all units, and `owned` are exactly the allocated ones.

        Raises:
            InvariantViolation: naming the units that are lost, owned twice or owned while free.
        """
        owned = list(owned)
        free = set(self._free)
        invariant(len(free) == len(self._free), f"a unit of the {self.noun} is twice on the free list")
        marked = {unit for unit in range(self.capacity) if self._allocated[unit]}
        invariant(not free & marked, f"{self.noun} both free and allocated: {sorted(free & marked)}")
        invariant(len(free) + len(marked) == self.capacity, f"free plus allocated {self.noun} are not all {self.noun}")
        stale = [f"{handle:#x}" for handle in owned if not self._current(handle)]
        invariant(not stale, f"{self.noun} owned by handles that are not current: {', '.join(stale)}")
        units = [handle & _UNIT_MASK for handle in owned]
        invariant(len(set(units)) == len(units), f"{self.noun} with two owners: {units}")
        invariant(set(units) == marked, f"{self.noun} allocated but owned by nobody: {sorted(marked - set(units))}")

    def _current(self, handle: int) -> bool:
        unit = handle & _UNIT_MASK
        return (
            unit < self.capacity and self._generation[unit] == handle >> _UNIT_BITS and bool(self._allocated[unit])
        )

    def _refusal(self, handle: int) -> StaleHandle:
        unit, generation = handle & _UNIT_MASK, handle >> _UNIT_BITS
        if unit < self.capacity and 0 <= generation < self._generation[unit]:
            return DoubleRelease(f"unit {unit} of the {self.noun} was already given back; release each handle once")
        return StaleHandle(f"handle {handle:#x} was never given out by this pool of {self.capacity} {self.noun}")


class PagePool(Pool):
    """A pool of KV pages of `page_size` tokens each."""

    __slots__ = ("page_size",)

    def __init__(self, capacity: int, *, page_size: int = 16) -> None:
        super().__init__(capacity, noun="pages")
        if page_size < 1:
            raise ValueError(f"page_size must be at least 1 token, got {page_size}")
        self.page_size = page_size

    def pages_for(self, tokens: int) -> int:
        """Number of pages that hold `tokens` tokens from a page's start on."""
        return -(-tokens // self.page_size)


class StatePool(Pool):
    """A pool of recurrent-state slots."""

    def __init__(self, capacity: int) -> None:
        super().__init__(capacity, noun="state slots")
