"""Who takes part in a batch while memory is short."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, Generic, TypeVar

from octopus.core.errors import CapacityExceeded

T = TypeVar("T")


class Turns(Generic[T]):
    """Takes off the least important when a batch does not fit, and lets them go on when the others have ended.

    What is taken off keeps its place in the graph; the store may take its memory, and brings it back later.

    Attributes:
        active: Those of the batch, in the order in which they were given.
    """

    def __init__(self, members: Sequence[T], *, key: Callable[[T], Any]) -> None:
        """All `members` take part; the last by `key` is taken off first."""
        self.active = list(members)
        self._parked: list[T] = []
        self._key = key

    @contextmanager
    def parking(self) -> Iterator[None]:
        """Around an attempt that changes nothing if refused: a refusal takes one off, and raises if it is the only."""
        refused: CapacityExceeded | None = None
        try:
            yield
        except CapacityExceeded as error:
            refused = error
        if refused is None:
            return
        if len(self.active) == 1:
            raise refused
        last = max(self.active, key=self._key)
        self.active.remove(last)
        self._parked.append(last)

    def keep(self, going_on: Callable[[T], bool]) -> None:
        """Those that do not go on leave; when one has left, those that were taken off take part again."""
        before = len(self.active)
        self.active = [member for member in self.active if going_on(member)]
        if len(self.active) < before:
            self.active += reversed(self._parked)
            self._parked = []
