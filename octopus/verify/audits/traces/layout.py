"""A trace as rows: all tokens ever written, segment by segment, with what the events say of positions and mounts."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from octopus.verify.audits.traces.replay import HANDLERS, faults
from octopus.verify.audits.traces.world import Place, TracedSegment, World
from octopus.verify.subject import Descent, Events, Mount, Positions, Stretch, Subject


def trace_subject(subject: Subject) -> Subject | None:
    """The rows of a subject that has events, for the audits of descent, positions and mounts.

    None where the trace cannot be replayed (the audit of the trace says why) or holds no token.
    """
    if subject.events is None:
        return None
    world = _replay(subject.events)
    if world is None or not any(segment.length for segment in world.segments.values()):
        return None
    starts, length = {}, 0
    for id, segment in world.segments.items():
        starts[id] = length
        length += segment.length
    parents_T = np.arange(-1, length - 1)
    ids_T, times_T = np.zeros((2, length), dtype=np.int64)
    mounts, stretches = [], []
    for id, segment in world.segments.items():
        row, stop = starts[id], starts[id] + segment.length
        if row == stop:
            continue
        parents_T[row], entered = _entrance(world, segment, starts)
        mounts += [mount for other in entered for mount in _mounts(other, row, starts)]
        ids_T[row:stop] = np.arange(segment.start_position, segment.start_position + segment.length)
        for offset, order in segment.writes:
            times_T[row + offset : stop] = order
        stretches.append(Stretch(f"segment {id}", row, stop))
    return Subject(
        name=f"{subject.name} (rows)",
        source=subject.source,
        length=length,
        descent=Descent(parents_T=parents_T, mounts=tuple(mounts), stretches=tuple(stretches), times_T=times_T),
        positions=Positions(ids_AT=ids_T[None], dtype="int64"),
    )


def _replay(events: Events) -> World | None:
    """The world after all events; None if there is a fault after which it means little."""
    if any(fault.code in ("OCT601", "OCT606", "OCT607", "OCT603") for _, fault in faults(events.events)):
        return None
    world = World()
    for event in events.events:
        if event["kind"] in HANDLERS:
            for _ in HANDLERS[event["kind"]](world, event):
                pass
    return world


def _entrance(world: World, segment: TracedSegment, starts: dict[int, int]) -> tuple[int, list[TracedSegment]]:
    """The row before a segment's first, and the segments whose mounts become visible in between, oldest first."""
    entered, place = [segment], segment.parent
    while place is not None and place.length == 0:
        above = world.segment(place.segment)
        entered.append(above)
        place = above.parent
    return _last_row(place, starts), entered[::-1]


def _last_row(place: Place | None, starts: dict[int, int]) -> int:
    return -1 if place is None else starts[place.segment] + place.length - 1


def _mounts(segment: TracedSegment, at: int, starts: dict[int, int]) -> Iterator[Mount]:
    for _, parts in segment.mounts:
        # The trace does not name the placement, but `original` never shifts.
        appended = any(part.shift for part in parts)
        for part in parts:
            row = starts[part.segment]
            yield Mount(
                at=at,
                k0=row + part.start,
                k1=row + part.stop,
                shift=part.shift,
                placement="append" if appended else None,
            )
