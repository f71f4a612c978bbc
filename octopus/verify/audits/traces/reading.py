"""Events by which one thread sees another's tokens."""

from __future__ import annotations

from collections.abc import Iterator

from octopus.verify.audits.traces.world import Event, Fault, Part, Place, Share, TracedThread, World, covers


def on_read(world: World, event: Event) -> Iterator[Fault]:
    """A mount becomes part of the segment on which the reader stands."""
    reader, source = world.thread(event["reader"]), world.thread(event["source"])
    names = f"thread {event['source']}", f"thread {event['reader']}"
    segment, parts = world.segment(event["segment"]), tuple(Part(*part) for part in event["parts"])
    if source.status in ("cancelled", "failed") or source.dropped:
        what = "dropped" if source.dropped else source.status
        yield Fault("OCT604", f"{names[1]} reads {names[0]}, which was {what}", ("source",))
    if event["segment"] != reader.cursor.segment or segment.length:
        message = f"the mount goes to segment {event['segment']}, whose tokens see it only in part"
        yield Fault("OCT607", message, ("target",))
    yield from _versions(event, reader, source)
    place = source.versions.get(event["snapshot_version"], source.cursor)
    yield from _within(world, parts, place, event["source"])
    yield from _whole(world, reader, parts, place, names[0])
    world.hand_out(place)
    segment.mounts.append((event["order"], parts))
    segment.start_position = event["start_position"]
    reader.seen_versions[event["source"]] = event["snapshot_version"]


def _versions(event: Event, reader: TracedThread, source: TracedThread) -> Iterator[Fault]:
    """A read names the last version of the source, or makes the next one of where it stands."""
    version, last = event["snapshot_version"], source.version
    before = reader.seen_versions.get(event["source"], 0)
    if version < before:
        message = f"thread {event['reader']} reads version {version} of thread {event['source']} after {before}"
        yield Fault("OCT605", message, ("read",))
    elif version < last:
        message = f"a read of version {version} of thread {event['source']}, which is at {last}"
        yield Fault("OCT605", message, ("stale read",))
    elif version > last + 1:
        message = f"a read of version {version} of thread {event['source']}, which is at {last}"
        yield Fault("OCT603", message, ("version",))
    if version not in source.versions and version > last:
        source.publish(version)


def _within(world: World, parts: tuple[Part, ...], place: Place, source_id: int) -> Iterator[Fault]:
    """Every part lies on the path to the snapshot."""
    reach = {share.segment: share.stop for share in world.path(place)}
    for part in parts:
        if part.stop <= reach.get(part.segment, 0):
            continue
        segment = world.segment(part.segment)
        what = f"tokens up to {part.stop} of segment {part.segment}"
        if part.stop > segment.length:
            yield Fault("OCT603", f"a mount shows {what}, of which {segment.length} exist", ("not written",))
        elif segment.writer != source_id:
            yield Fault("OCT603", f"a mount shows {what}, not on the path of thread {source_id}", ("off the path",))
        elif covers(world.path(world.thread(source_id).cursor), Share(part.segment, part.start, part.stop)):
            message = f"a mount shows {what}, beyond the version of thread {source_id} that it names"
            yield Fault("OCT603", message, ("beyond the version",))
        else:
            yield Fault("OCT604", f"a mount shows {what}, which thread {source_id} had given up", ("rewound",))


def _whole(
    world: World, reader: TracedThread, parts: tuple[Part, ...], place: Place, name: str
) -> Iterator[Fault]:
    """Between the first and the last token mounted, nothing of the source's path is left out."""
    path = world.path(place)
    depth = {share.segment: index for index, share in enumerate(path)}
    on_path = [part for part in parts if part.segment in depth]
    if not on_path:
        return
    shown = [*world.shown(reader.cursor), *(Share(part.segment, part.start, part.stop) for part in parts)]
    first = min(on_path, key=lambda part: (depth[part.segment], part.start))
    last = max(on_path, key=lambda part: (depth[part.segment], part.stop))
    for index in range(depth[first.segment], depth[last.segment] + 1):
        share = path[index]
        start = first.start if index == depth[first.segment] else 0
        stop = last.stop if index == depth[last.segment] else share.stop
        if not covers(shown, Share(share.segment, start, stop)):
            message = f"a mount of {name} leaves out tokens of segment {share.segment} between what it shows"
            yield Fault("OCT607", message, ("hole",))
            return
