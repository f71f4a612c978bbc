"""Refuses what runs against time.

Every event of a graph has an order number. If each edge of a row (path, mount, wait) leads from an earlier event to a
later one, the row has no cycle; so checking the edges one by one is enough.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Sequence

from octopus.core.ancestry import lift, locate
from octopus.core.cursor import Cursor
from octopus.core.errors import PlanError
from octopus.core.segment import Segment
from octopus.core.visibility import mounts_at_entry
from octopus.core.waits import WaitEdge


def refuse_against_time(segments: Sequence[Segment]) -> None:
    """Raises PlanError if a segment began before what it continues, or what it mounts, was written.

    Empty segments in between are looked through: they write nothing, and hand on what they show.
    """
    for segment in segments:
        if not segment.tokens:
            continue
        began = segment.written_at(0)
        if segment.parent is not None and segment.path_start:
            place = locate(segment.parent, segment.path_start)
            if place.segment.written_at(place.length - 1) >= began:
                raise PlanError(f"{segment} began at event {began}, before {place} that it continues was written")
        for mount in mounts_at_entry(segment):
            for part in mount.parts:
                written = part.segment.written_at(part.stop - 1)
                if written >= began:
                    raise PlanError(
                        f"{segment} began at event {began} and mounts tokens [{part.start}, {part.stop}) of "
                        f"{part.segment}, which were written at event {written}: a mount shows only what exists"
                    )


def wait_rows(
    segments: Sequence[Segment], starts: dict[Segment, int], waits: Sequence[WaitEdge]
) -> tuple[tuple[int, int], ...]:
    """The waits as `(row, row)`: the last row waited for, and the waiter's first row after it.

    A wait of which one side has no such row leaves no edge, be it that nothing was written there or that its segment is
    not among those given: an edge shows nobody anything, so what is left out cannot be missed.

    Raises:
        PlanError: a wait ended before what it waited for was written, as in every cycle of waits.
    """
    written: dict[tuple[Segment, int], list[tuple[int, int]]] = {}  # By line: (event, first row written by it).
    for segment in segments:
        line = written.setdefault(_line(segment, segment.writer), [])
        line += [(order, starts[segment] + offset) for offset, order in segment.stamps]
    for line in written.values():
        line.sort()
    rows = []
    for edge in waits:
        awaited, length = edge.awaited
        if length and awaited.written_at(length - 1) > edge.order:
            raise PlanError(
                f"thread {edge.thread} went on at event {edge.order} after waiting for {edge.awaited}, whose last "
                f"token was written at event {awaited.written_at(length - 1)}: the waits form a cycle or run "
                "against time"
            )
        line = written.get(_line(edge.waiter.segment, edge.thread), [])
        later = bisect_right(line, edge.order, key=lambda event: event[0])
        if length and awaited in starts and later < len(line):
            rows.append((starts[awaited] + length - 1, line[later][1]))
    return tuple(rows)


def _line(segment: Segment, thread: int) -> tuple[Segment, int]:
    """What tells a thread from those of the same number in other episodes' graphs: the root it descends from."""
    return lift(Cursor(segment, 0), 0).segment, thread
