"""Questions about the path of a cursor: common prefixes, places and pieces.

Each segment knows its parent and one farther ancestor (`jump`), at skew-binary distances; so a place on a path of
depth d is found in O(log d), and only what lists pieces walks them.
"""

from __future__ import annotations

from typing import NamedTuple

from octopus.core.cursor import Cursor
from octopus.core.errors import invariant
from octopus.core.segment import Segment


class Piece(NamedTuple):
    """The tokens `[start, stop)` of one segment."""

    segment: Segment
    start: int
    stop: int


def lift(cursor: Cursor, depth: int) -> Cursor:
    """The place at which the path to `cursor` leaves its ancestor at `depth`; `cursor` itself if it is not deeper."""
    segment = cursor.segment
    while segment.depth > depth:
        parent, jump = segment.parent, segment.jump
        assert parent is not None
        cursor = jump if jump.segment.depth >= depth else parent
        segment = cursor.segment
    return cursor


def common_prefix(one: Cursor, other: Cursor) -> Cursor | None:
    """The end of what both paths share, token by token; None if they have different roots."""
    depth, other_depth = one.segment.depth, other.segment.depth
    if depth > other_depth:
        one = lift(one, other_depth)
    elif other_depth > depth:
        other = lift(other, depth)
    while one.segment is not other.segment:
        if one.segment.parent is None or other.segment.parent is None:
            return None
        if one.segment.jump.segment is other.segment.jump.segment:
            one, other = one.segment.parent, other.segment.parent
        else:
            one, other = one.segment.jump, other.segment.jump
    return one if one.length <= other.length else other


def shared_length(one: Cursor, other: Cursor) -> int:
    """How many tokens both paths share, counted from the root; 0 if they have different roots."""
    segment, below = one.segment, other.segment  # To unpack a named tuple takes four times as long.
    length, other_length = one.length, other.length
    if below is not segment:
        above = below.parent
        if above is None or above.segment is not segment:
            shared = common_prefix(one, other)
            return 0 if shared is None else shared.path_length
        other_length = above.length  # The usual case: `other` is a child's, `one` of its parent or a sibling.
    return segment.path_start + (length if length < other_length else other_length)


def locate(cursor: Cursor, path_length: int) -> Cursor:
    """The place right after the first `path_length` tokens of the path, before any mount made there.

    Names the segment that holds that last token. With `path_length` 0 it is the start of the path's root.
    """
    segment, length = cursor
    end = segment.path_start + length
    if path_length == end and length:
        return cursor
    if path_length == 0:
        return Cursor(lift(cursor, 0).segment, 0)
    if not 0 < path_length <= end:
        invariant(False, f"{path_length} tokens are not on the path to {cursor}")
    while segment.path_start >= path_length:
        parent = segment.parent
        invariant(parent is not None, "a segment whose path does not start at 0 has a parent")
        jump = segment.jump.segment
        segment = jump if jump.path_start >= path_length else parent.segment  # type: ignore[union-attr]
    return Cursor(segment, path_length - segment.path_start)


def path_pieces(cursor: Cursor, start: int = 0) -> list[Piece]:
    """The path's tokens from path index `start` on, as pieces, oldest first. Empty pieces are left out."""
    pieces: list[Piece] = []
    place: Cursor | None = cursor
    while place is not None and place.path_length > start:
        first = max(0, start - place.segment.path_start)
        if first < place.length:
            pieces.append(Piece(place.segment, first, place.length))
        place = place.segment.parent
    pieces.reverse()
    return pieces


def path_tokens(cursor: Cursor) -> list[int]:
    """The token ids of the path from the root to `cursor`, mounts left out."""
    return [token for piece in path_pieces(cursor) for token in piece.segment.tokens[piece.start : piece.stop]]
