"""How `read_thread` finds what becomes visible, and where the reader carries it."""

from __future__ import annotations

from octopus.core.ancestry import locate, shared_length
from octopus.core.cursor import Cursor
from octopus.core.errors import PlacementRefused, UnreadableSource
from octopus.core.ledger import Ledger
from octopus.core.mount import PLACEMENTS, Mount, Placement
from octopus.core.segment import Segment
from octopus.core.thread import RUNNING, Status, Thread
from octopus.core.visibility import unseen_pieces


def refuse_unreadable(ledger: Ledger, source: Thread) -> None:
    """Raises StaleHandle, UnreadableSource or StaleWeights unless the source's tokens can be shown."""
    ledger.known(source)
    if source.status in (Status.CANCELLED, Status.FAILED):
        why = f" ({source.reason})" if source.reason else ""
        raise UnreadableSource(f"thread {source.id} was {source.status.value}{why}; nothing of it can be read")
    ledger.current_weights(source)


def new_mount(reader: Thread, source: Thread, last: int | None, placement: Placement) -> Mount | None:
    """The mount of what the reader would newly see, None if that is nothing. Changes nothing."""
    if placement not in PLACEMENTS:
        raise PlacementRefused(f"placement is one of {', '.join(PLACEMENTS)}, got {placement!r}")
    if last is not None and last < 0:
        raise ValueError(f"last is a number of tokens, 0 or more, got {last}")
    cursor, place, start = reader.cursor, source.cursor, 0
    if source.status is not RUNNING and source.status.terminal:
        place, start = _committed_range(source, last)
    segment, length = place
    end, shared = segment.path_start + length, shared_length(cursor, place)
    if shared > start:
        start = shared
    if last is not None and end - last > start:
        start = end - last
    if start >= end:
        return None
    pieces = unseen_pieces(cursor, place, start)
    if pieces is not None:
        if not pieces:
            return None
        place = Cursor(pieces[-1].segment, pieces[-1].stop)
        start = pieces[0].segment.path_start + pieces[0].start
    elif not length:
        place = locate(place, end)
    return Mount(place, start, cursor.segment.start_position + cursor.length, placement, pieces)


def carry(ledger: Ledger, reader: Thread, mount: Mount) -> None:
    """Makes `mount` part of what the reader sees: on the empty mounting segment it stands on, or on a new one."""
    if reader.at_tip and _still_open(reader.cursor.segment):
        segment = reader.cursor.segment
        segment.mounts += (mount,)
        segment.start_position = mount.resume_position
    else:
        ledger.open_segment(reader, mount.resume_position, (mount,))
    ledger.retention.hold_mount(mount)


def _still_open(segment: Segment) -> bool:
    """Whether more mounts may be added to a segment."""
    return bool(segment.mounts) and not segment.tokens and not segment.handed_out


def snapshot_version(ledger: Ledger, source: Thread) -> tuple[int, bool]:
    """The version of the place at which `source` is read, and whether it is new."""
    if source.published == source.cursor or source.status.terminal:
        return source.version, False
    return ledger.publish(source), True


def _committed_range(source: Thread, last: int | None) -> tuple[Cursor, int]:
    """Where a committed source is read, and the path index of the first token that readers get."""
    snapshot = source.snapshots[source.version]
    if snapshot.span is None or last is not None:
        return snapshot.cursor, 0
    fork_length = source.fork_cursor.path_length
    return locate(snapshot.cursor, fork_length + snapshot.span[1]), fork_length + snapshot.span[0]
