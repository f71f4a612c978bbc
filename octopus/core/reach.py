"""What a set of cursors sees: which memory must stay, and which may be taken away."""

from __future__ import annotations

from collections.abc import Iterable

from octopus.core.cursor import Cursor
from octopus.core.segment import Segment

Reach = dict[Segment, int]
"""For each segment that is seen, one past the last token that is."""


def reach(cursors: Iterable[Cursor]) -> Reach:
    """What the views of `cursors` contain. A path that was walked before is not walked again."""
    seen: Reach = {}
    walked: Reach = {}
    for cursor in cursors:
        place: Cursor | None = cursor
        while place is not None and walked.get(place.segment, -1) < place.length:
            segment, length = place
            if segment not in walked:
                for mount in segment.mounts:
                    for part in mount.parts:
                        if seen.get(part.segment, 0) < part.stop:
                            seen[part.segment] = part.stop
            walked[segment] = length
            if seen.get(segment, -1) < length:
                seen[segment] = length
            place = segment.parent
    return seen
