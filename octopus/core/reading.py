"""`read_thread`: what becomes visible, and where the reader carries it."""

from __future__ import annotations

from octopus.core.ancestry import locate, shared_length
from octopus.core.cursor import Cursor
from octopus.core.errors import PlacementRefused, UnreadableSource
from octopus.core.ledger import Ledger
from octopus.core.mount import PLACEMENTS, Mount, Placement
from octopus.core.segment import Segment
from octopus.core.thread import RUNNING, Status, Thread
from octopus.core.visibility import unseen_pieces
from octopus.core.waits import WaitTable


def read(
    ledger: Ledger, waits: WaitTable, reader: Thread, source: Thread, last: int | None, placement: Placement
) -> int:
    """See `Graph.read_thread`."""
    threads, weights_version = ledger.threads, ledger.weights_version
    known = threads.get(reader.id) is reader and reader.weights_version == weights_version
    if not known or reader.status is not RUNNING:
        ledger.running(reader, "read with")
    known = threads.get(source.id) is source and source.weights_version == weights_version
    if not known or source.status is not RUNNING:
        refuse_unreadable(ledger, source)
    mount = new_mount(reader, source, last, placement)
    if mount is None:
        return 0
    place = source.cursor
    made = source.published is not place and source.published != place and not source.status.terminal
    version = ledger.publish(source) if made else source.version
    position = mount.resume_position
    if reader.at_tip and _still_open(reader.cursor.segment):
        segment = reader.cursor.segment
        segment.mounts += (mount,)
        segment.start_position = position
    else:
        segment = ledger.open_segment(reader, position, (mount,))
    ledger.retention.hold_mount(mount)
    ledger.order = order = ledger.order + 1
    if ledger.trace is not None:
        event = (order, "read", reader.id, source.id, version, segment.index, position, mount, last, placement)
        ledger.trace.events.append(event)
    if made:
        waits.wake(source)
    return mount.count


def refuse_unreadable(ledger: Ledger, source: Thread) -> None:
    """Raises StaleHandle, UnreadableSource or StaleWeights unless the source's tokens can be shown."""
    ledger.known(source)
    if source.status in (Status.CANCELLED, Status.FAILED):
        why = f" ({source.reason})" if source.reason else ""
        raise UnreadableSource(f"thread {source.id} was {source.status.value}{why}; nothing of it can be read")
    ledger.current_weights(source)


def new_mount(reader: Thread, source: Thread, last: int | None, placement: Placement) -> Mount | None:
    """The mount of what the reader would newly see, None if that is nothing. Changes nothing."""
    if placement != "append" and placement not in PLACEMENTS:
        raise PlacementRefused(f"placement is one of {', '.join(PLACEMENTS)}, got {placement!r}")
    if last is not None and last < 0:
        raise ValueError(f"last is a number of tokens, 0 or more, got {last}")
    cursor, place, start = reader.cursor, source.cursor, 0
    if source.status is not RUNNING and source.status.terminal:
        place, start = _committed_range(source, last)
    length = place.length
    end = place.segment.path_start + length
    # The usual case: a sibling has gone on from the reader's place, which one cursor names for both.
    shared = place.segment.path_start if place.segment.parent is cursor else shared_length(cursor, place)
    if shared > start:
        start = shared
    if last is not None and end - last > start:
        start = end - last
    if start >= end:
        return None
    standing = cursor.segment
    pieces = None if standing.mounting is None else unseen_pieces(cursor, place, start)
    if pieces is not None:
        if not pieces:
            return None
        place = Cursor(pieces[-1].segment, pieces[-1].stop)
        start = pieces[0].segment.path_start + pieces[0].start
    elif not length:
        place = locate(place, end)
    return Mount(place, start, standing.start_position + cursor.length, placement, pieces)


def _still_open(segment: Segment) -> bool:
    """Whether more mounts may be added to a segment."""
    return bool(segment.mounts) and not segment.tokens and not segment.handed_out


def _committed_range(source: Thread, last: int | None) -> tuple[Cursor, int]:
    """Where a committed source is read, and the path index of the first token that readers get."""
    snapshot = source.snapshots[source.version]
    if snapshot.span is None or last is not None:
        return snapshot.cursor, 0
    fork_length = source.fork_cursor.path_length
    return locate(snapshot.cursor, fork_length + snapshot.span[1]), fork_length + snapshot.span[0]
