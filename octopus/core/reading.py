"""How `read_thread` finds what becomes visible, and where the reader carries it."""

from __future__ import annotations

from octopus.core.ancestry import common_prefix, locate
from octopus.core.cursor import Cursor
from octopus.core.errors import PlacementRefused, UnreadableSource
from octopus.core.ledger import Ledger
from octopus.core.mount import PLACEMENTS, Mount, Placement
from octopus.core.thread import Status, Thread
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
    place, start = _readable_range(reader.cursor, source, last)
    if start >= place.path_length:
        return None
    pieces = unseen_pieces(reader.cursor, place, start)
    if pieces is not None:
        if not pieces:
            return None
        place = Cursor(pieces[-1].segment, pieces[-1].stop)
        start = pieces[0].segment.path_start + pieces[0].start
    return Mount(
        source=locate(place, place.path_length),
        start=start,
        base=reader.cursor.next_position,
        placement=placement,
        pieces=pieces,
    )


def carry(ledger: Ledger, reader: Thread, mount: Mount) -> None:
    """Makes `mount` part of what the reader sees: on the empty mounting segment it stands on, or on a new one."""
    segment = reader.cursor.segment
    if reader.at_tip and segment.mounts and not segment.tokens and not segment.handed_out:
        segment.mounts += (mount,)
        segment.start_position = mount.resume_position
    else:
        ledger.open_segment(reader, mount.resume_position, (mount,))
    ledger.retention.hold_mount(mount)


def snapshot_version(ledger: Ledger, source: Thread) -> tuple[int, bool]:
    """The version of the place at which `source` is read, and whether it is new."""
    if source.status.terminal or source.published == source.cursor:
        return source.version, False
    return ledger.publish(source), True


def _readable_range(reader: Cursor, source: Thread, last: int | None) -> tuple[Cursor, int]:
    """Where the source is read, and the path index of the first token that the reader may get."""
    place, first = source.cursor, 0
    if source.status is Status.COMMITTED:
        snapshot = source.snapshots[source.version]
        place = snapshot.cursor
        if snapshot.span is not None and last is None:
            fork_length = source.fork_cursor.path_length
            first = fork_length + snapshot.span[0]
            place = locate(place, fork_length + snapshot.span[1])
    shared = common_prefix(reader, place)
    start = max(first, 0 if shared is None else shared.path_length)
    return place, start if last is None else max(start, place.path_length - last)
