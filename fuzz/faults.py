"""Pools that can be told to fail, and that never take the store's word for a generation."""

from __future__ import annotations

from dataclasses import dataclass

from octopus.core.errors import CapacityExceeded
from octopus.core.pool import PagePool, StatePool


@dataclass(kw_only=True, slots=True)
class Failure:
    """Makes the `countdown`-th attempt from now fail, once or from there on. All pools of a world share one.

    Attributes:
        countdown: Number of the first attempt that fails; None for no failure.
        persistent: Whether all later ones fail too.
        seen: Attempts since it was armed.
        hits: Failures since it was armed.
    """

    countdown: int | None = None
    persistent: bool = False
    seen: int = 0
    hits: int = 0

    def arm(self, countdown: int, *, persistent: bool) -> None:
        """The `countdown`-th attempt from now fails; 1 is the next."""
        self.countdown, self.persistent, self.seen, self.hits = countdown, persistent, 0, 0

    def heal(self) -> None:
        """Nothing fails any more."""
        self.countdown = None

    def on_attempt(self, error: type[Exception]) -> None:
        """Raises `error` if this attempt is to fail."""
        self.seen += 1
        if self.countdown is None or self.seen < self.countdown:
            return
        if self.persistent or self.seen == self.countdown:
            self.hits += 1
            raise error("a planted failure")


class _Generations:
    """Checks that a unit comes back with a generation it never had."""

    def __init__(self) -> None:
        self._latest: dict[int, int] = {}

    def check(self, handles: list[int]) -> None:
        for handle in handles:
            unit, generation = handle & 0xFFFFFFFF, handle >> 32
            before = self._latest.get(unit, -1)
            assert generation > before, f"unit {unit} was given out with generation {before} and again {generation}"
            self._latest[unit] = generation


class FaultyPages(PagePool):
    """A page pool whose allocations can fail."""

    def __init__(self, capacity: int, *, page_size: int, failure: Failure) -> None:
        super().__init__(capacity, page_size=page_size)
        self.failure = failure
        self._generations = _Generations()

    def allocate(self, count: int) -> list[int]:
        """As the pool does, unless the failure strikes."""
        if count:
            self.failure.on_attempt(CapacityExceeded)
        handles = super().allocate(count)
        self._generations.check(handles)
        return handles


class FaultyStates(StatePool):
    """A pool of state slots whose allocations can fail."""

    def __init__(self, capacity: int, *, failure: Failure) -> None:
        super().__init__(capacity)
        self.failure = failure
        self._generations = _Generations()

    def allocate(self, count: int) -> list[int]:
        """As the pool does, unless the failure strikes."""
        if count:
            self.failure.on_attempt(CapacityExceeded)
        handles = super().allocate(count)
        self._generations.check(handles)
        return handles
