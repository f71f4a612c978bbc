"""Digests of what a cursor sees, hashed token by token.

Each token adds its id and position; each mount adds where its tokens appear and the digest of the source there. The
hash runs along the path and speaks of path indices, so it does not depend on how any path is cut into segments.
"""

from __future__ import annotations

import struct
from bisect import bisect_right, insort
from collections.abc import Iterator
from hashlib import blake2b
from weakref import WeakKeyDictionary

from octopus.core.cursor import Cursor
from octopus.core.mount import Mount
from octopus.core.segment import Segment

DIGEST_BYTES = 16

_Known = list[tuple[int, blake2b]]
"""Running hashes of one segment by length, ascending."""


class Digests:
    """Running hashes at the places that were asked for. Asking again further on hashes only the new tokens."""

    def __init__(self) -> None:
        self._known: WeakKeyDictionary[Segment, _Known] = WeakKeyDictionary()

    def of(self, cursor: Cursor) -> bytes:
        """The digest of `cursor`, 16 bytes. Takes time in the tokens since the nearest place known before it."""
        stack = [cursor]
        while stack:
            missing = self._needed_first(stack[-1])
            if missing:
                stack += missing
            else:
                self._advance(stack.pop())
        return self._at(cursor).digest()

    def _nearest(self, cursor: Cursor) -> tuple[int, blake2b] | None:
        known = self._known.get(cursor.segment, [])
        place = bisect_right(known, cursor.length, key=lambda entry: entry[0])
        return known[place - 1] if place else None

    def _at(self, cursor: Cursor) -> blake2b:
        nearest = self._nearest(cursor)
        assert nearest is not None and nearest[0] == cursor.length
        return nearest[1]

    def _has(self, cursor: Cursor) -> bool:
        nearest = self._nearest(cursor)
        return nearest is not None and nearest[0] == cursor.length

    def _needed_first(self, cursor: Cursor) -> list[Cursor]:
        """The parent and the mounts' sources, as far as unhashed, unless the segment has a place to start from."""
        segment = cursor.segment
        if self._nearest(cursor) is not None:
            return []
        needed = [] if segment.parent is None else [segment.parent]
        needed += [mount.source for mount in segment.mounts]
        return [place for place in needed if not self._has(place)]

    def _advance(self, cursor: Cursor) -> None:
        """Hashes on from the nearest known place to `cursor` and remembers it."""
        segment, length = cursor
        start, hasher = self._nearest(cursor) or (0, self._opening(segment))
        known = self._known.setdefault(segment, [])
        if known and start == length and self._has(cursor):
            return
        hasher = hasher.copy()
        for offset in range(start, length):
            hasher.update(struct.pack("<cqq", b"t", segment.tokens[offset], segment.start_position + offset))
        insort(known, (length, hasher), key=lambda entry: entry[0])

    def _opening(self, segment: Segment) -> blake2b:
        """The hash before the segment's first token: the parent's, and the mounts made here."""
        hasher = blake2b(digest_size=DIGEST_BYTES) if segment.parent is None else self._at(segment.parent).copy()
        for mount in segment.mounts:
            hasher.update(b"m" + self._at(mount.source).digest())
            for path_index, position, count in _runs(mount):
                hasher.update(struct.pack("<qqq", path_index, position, count))
        return hasher


def _runs(mount: Mount) -> Iterator[tuple[int, int, int]]:
    """Maximal runs `(path index on the source's path, effective position, count)` that the mount shows."""
    run: tuple[int, int, int] | None = None
    for part in mount.parts:
        path_index = part.segment.path_start + part.start
        position = part.segment.start_position + part.start + part.shift
        count = part.stop - part.start
        if run is not None and (run[0] + run[2], run[1] + run[2]) == (path_index, position):
            run = (run[0], run[1], run[2] + count)
            continue
        if run is not None:
            yield run
        run = (path_index, position, count)
    if run is not None:
        yield run
