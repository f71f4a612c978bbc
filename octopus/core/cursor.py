"""A place in the graph."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from octopus.core.segment import Segment


class Cursor(NamedTuple):
    """The place after the first `length` tokens of `segment`. Its holder sees what lies before it, and no more."""

    segment: Segment
    length: int

    @property
    def next_position(self) -> int:
        """The position that a token written here takes."""
        return self.segment.start_position + self.length

    @property
    def path_length(self) -> int:
        """How many tokens lie on the path from the root to here. Mounted tokens are not on the path."""
        return self.segment.path_start + self.length

    def __repr__(self) -> str:
        return f"Cursor({self.segment.index}:{self.length})"


new_cursor: Callable[[tuple[Segment, int]], Cursor] = partial(tuple.__new__, Cursor)
"""`Cursor(segment, length)` from a pair, in half the time."""
