"""What a cursor sees, and what of a source is new to a reader."""

from __future__ import annotations

from collections.abc import Iterator

from octopus.core.ancestry import Piece, common_prefix, path_pieces
from octopus.core.cursor import Cursor
from octopus.core.mount import Mount, Part
from octopus.core.segment import Segment


def mounts_on_path(cursor: Cursor) -> Iterator[Mount]:
    """The mounts that `cursor` sees, nearest segment first. Costs one step for each mounting segment."""
    segment = cursor.segment.mounting
    while segment is not None:
        yield from segment.mounts
        segment = segment.parent.segment.mounting if segment.parent is not None else None


def mounts_at_entry(segment: Segment) -> Iterator[Mount]:
    """The mounts that the segment's first token sees and the token before it does not.

    They are the segment's own and those of the empty stretch right above it.
    """
    place: Cursor | None = Cursor(segment, 0)
    while place is not None and place.length == 0:
        yield from place.segment.mounts
        place = place.segment.parent


def view(cursor: Cursor) -> list[Part]:
    """Everything `cursor` sees: its path (shift 0), oldest first, then the parts mounted along it. No token twice."""
    path = [Part(*piece, 0) for piece in path_pieces(cursor)]
    return path + [part for mount in mounts_on_path(cursor) for part in mount.parts]


def unseen_pieces(reader: Cursor, source: Cursor, start: int) -> list[Piece] | None:
    """The pieces of the source's path from path index `start` on that `reader` does not see through a mount yet.

    None says that the whole range is new, which is the usual case and needs no list. The range must lie beyond the
    common prefix of both paths, so that nothing of it is on the reader's own path.
    """
    if reader.segment.mounting is None:
        return None
    overlapping = [mount for mount in mounts_on_path(reader) if _overlap(mount, source, start)]
    if not overlapping:
        return None
    seen: dict[Segment, list[tuple[int, int]]] = {}
    for mount in overlapping:
        for part in mount.parts:
            seen.setdefault(part.segment, []).append((part.start, part.stop))
    return [rest for piece in path_pieces(source, start) for rest in _subtract(piece, seen.get(piece.segment, []))]


def _overlap(mount: Mount, source: Cursor, start: int) -> bool:
    shared = common_prefix(mount.source, source)
    return shared is not None and shared.path_length > max(start, mount.start)


def _subtract(piece: Piece, seen: list[tuple[int, int]]) -> Iterator[Piece]:
    """What of `piece` is not in the ranges `seen`.

    piece [2, 9), seen [4, 5) and [7, 12)   ->   [2, 4)  [5, 7)
    """
    start = piece.start
    for low, high in sorted(seen):
        if start < min(low, piece.stop):
            yield Piece(piece.segment, start, min(low, piece.stop))
        start = max(start, high)
    if start < piece.stop:
        yield Piece(piece.segment, start, piece.stop)
