"""A pool of equal physical units (pages, or recurrent-state slots), handed out by generation-checked handles."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from octopus.core.errors import CapacityExceeded, DoubleRelease, StaleHandle, invariant

_UNIT_BITS = 32
_UNIT_MASK = (1 << _UNIT_BITS) - 1
_NEXT_GENERATION = 1 << _UNIT_BITS

NO_PAGE = -1
"""Stands in a segment's page list where a page was given back, or lies in the host tier."""


def unit_of(handle: int) -> int:
    """The physical unit a handle names, unchecked: for code that has just been given the handle."""
    return handle & _UNIT_MASK


class Pool:
    """A free list of handles, and the set of those that are given out.

    A handle is an integer that names the unit and its generation. The generation rises at every release, so a handle
    kept for too long is told from the unit's new owner. No tensors here: units are row numbers of a storage.

    While a fence stands, released units are dead at once but free only when it is lifted: a kernel that was launched
    may still read them.
    """

    __slots__ = ("_fenced", "_fences", "_free", "_live", "capacity", "noun")

    def __init__(self, capacity: int, *, noun: str = "pages") -> None:
        """A pool of `capacity` free units; `noun` names them in messages. Raises ValueError below one unit."""
        if capacity < 1:
            raise ValueError(f"a pool needs at least 1 of its {noun}, got {capacity}")
        self.capacity = capacity
        self.noun = noun
        self._free = list(range(capacity - 1, -1, -1))  # Handles as they will be given out.
        self._live: set[int] = set()
        self._fenced: list[int] = []
        self._fences = 0

    @property
    def free(self) -> int:
        """Number of units that can be allocated now."""
        return len(self._free)

    @property
    def fenced(self) -> int:
        """Number of units that were released behind a fence and are free once it is lifted."""
        return len(self._fenced)

    @property
    def used(self) -> int:
        """Number of allocated units."""
        return len(self._live)

    def allocate(self, count: int) -> list[int]:
        """Handles of `count` units, [] for 0. Raises CapacityExceeded, changing nothing, if fewer are free."""
        if count < 0:
            raise ValueError(f"cannot allocate {count} {self.noun}; the number is 0 or more")
        if count == 0:
            return []
        free = self._free
        if count > len(free):
            raise CapacityExceeded(f"need {count} {self.noun}, {len(free)} of {self.capacity} are free")
        handles = free[-count:]
        del free[-count:]
        self._live.update(handles)
        return handles

    def release(self, handles: Sequence[int]) -> None:
        """Gives units back. Raises DoubleRelease or StaleHandle, changing nothing, if any handle is not current."""
        going = set(handles)
        if len(going) != len(handles):
            units = sorted(unit_of(handle) for handle in handles)
            raise DoubleRelease(f"one release names the same of its {self.noun} twice: {units}")
        if not going <= self._live:
            raise self._refusal(min(going - self._live))
        self._live -= going
        released = self._fenced if self._fences else self._free
        released += [handle + _NEXT_GENERATION for handle in handles]

    def fence(self) -> None:
        """From now on released units stay apart, until `lift`. Fences nest."""
        self._fences += 1

    def lift(self) -> None:
        """Takes a fence away; with the last one, what was released behind it becomes free."""
        invariant(self._fences > 0, f"no fence stands around the {self.noun}")
        self._fences -= 1
        if not self._fences:
            self._free += self._fenced
            self._fenced = []

    def unit(self, handle: int) -> int:
        """The physical unit of a current handle. Raises StaleHandle otherwise."""
        unit = handle & _UNIT_MASK
        if handle not in self._live:
            raise StaleHandle(
                f"handle {handle:#x} is not current: unit {unit} of the {self.noun} has moved on; it was given back"
            )
        return unit

    def check(self, owned: Iterable[int]) -> None:
        """Conservation: free, fenced and allocated units are all units, and `owned` are exactly the allocated ones.

        Raises:
            InvariantViolation: naming the units that are lost, owned twice or owned while free.
        """
        owned = list(owned)
        idle = [*self._free, *self._fenced]
        units = {handle & _UNIT_MASK for handle in idle}
        invariant(len(units) == len(idle), f"a unit of the {self.noun} is twice on the free list")
        marked = {handle & _UNIT_MASK for handle in self._live}
        invariant(units.isdisjoint(marked), f"{self.noun} both free and allocated: {sorted(units & marked)}")
        invariant(
            len(units) + len(marked) == self.capacity == len(units) + len(self._live),
            f"free plus allocated {self.noun} are not all {self.noun}",
        )
        owners = set(owned)
        if len(owners) == len(owned) and owners == self._live:
            return
        stale = [f"{handle:#x}" for handle in owners - self._live]
        invariant(not stale, f"{self.noun} owned by handles that are not current: {', '.join(stale)}")
        doubled = sorted({unit_of(h) for h in owned if owned.count(h) > 1}) if len(owners) != len(owned) else []
        invariant(not doubled, f"{self.noun} with two owners: {doubled}")
        lost = sorted(map(unit_of, self._live - owners))
        invariant(not lost, f"{self.noun} allocated but owned by nobody: {lost}")

    def _refusal(self, handle: int) -> StaleHandle:
        unit = handle & _UNIT_MASK
        current = next((h for h in (*self._free, *self._fenced, *self._live) if unit_of(h) == unit), -1)
        if 0 <= handle < current:
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


def allocate_both(one: Pool | None, count: int, other: Pool | None, other_count: int) -> tuple[list[int], list[int]]:
    """Units of two pools, or none of either. Raises CapacityExceeded, changing nothing."""
    handles = one.allocate(count) if one is not None else []
    try:
        return handles, other.allocate(other_count) if other is not None else []
    except CapacityExceeded:
        if one is not None:
            one.release(handles)
        raise
