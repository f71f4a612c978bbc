"""Another thread's tokens made visible to a reader from one point on."""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal, NamedTuple

from octopus.core.ancestry import Piece, path_pieces
from octopus.core.cursor import Cursor

if TYPE_CHECKING:
    from octopus.core.segment import Segment

Placement = Literal["append", "original"]
PLACEMENTS: tuple[Placement, ...] = ("append", "original")


class Part(NamedTuple):
    """Tokens `[start, stop)` of `segment`, seen at their own position plus `shift`."""

    segment: Segment
    start: int
    stop: int
    shift: int


class Mount:
    """What one `read_thread` made visible.

    The usual mount is a plain range of the source's path and lists its parts only when somebody asks: reading a deep
    thread then costs no walk down its path.

    Attributes:
        source: The place right after the last visible token, in the segment that holds it.
        start: Path index, on the source's path, of the first visible token.
        count: Number of visible tokens.
        base: Position at which the first visible token appears (`append`).
        placement: `append` lays the parts end to end from `base`; `original` leaves every token where it was.
        resume_position: The reader's next position after this mount alone.
        first_offset: Offset of the first visible token in the source's last segment, 0 if it lies further up.
    """

    _parts: tuple[Part, ...] | None = None
    _pieces: list[Piece] | None = None

    def __init__(
        self, source: Cursor, start: int, base: int, placement: Placement, pieces: list[Piece] | None = None
    ) -> None:
        self.source = source
        self.start = start
        self.base = base
        self.placement = placement
        first = start - source.segment.path_start
        self.first_offset = first if first > 0 else 0
        if pieces is None:
            self.count = source.length - first
        else:
            self._pieces = pieces
            self.count = sum(piece.stop - piece.start for piece in pieces)
        self.resume_position = base + self.count if placement == "append" else max(base, source.next_position)

    @property
    def parts(self) -> tuple[Part, ...]:
        """One part for each maximal run that is contiguous in one segment, in path order."""
        if self._parts is None:
            pieces = self._pieces if self._pieces is not None else path_pieces(self.source, self.start)
            parts, position = [], self.base
            for segment, start, stop in pieces:
                shift = position - (segment.start_position + start) if self.placement == "append" else 0
                parts.append(Part(segment, start, stop, shift))
                position += stop - start
            self._parts = tuple(parts)
            self._pieces = None
        return self._parts

    def __repr__(self) -> str:
        return f"Mount({self.count} tokens up to {self.source}, {self.placement})"
