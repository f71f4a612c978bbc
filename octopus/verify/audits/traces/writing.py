"""Events that make threads and segments, write tokens and name places."""

from __future__ import annotations

from collections.abc import Iterator

from octopus.verify.audits.traces.world import (
    Event,
    Fault,
    Place,
    Share,
    TracedSegment,
    TracedThread,
    World,
    places,
)


def on_thread(world: World, event: Event) -> Iterator[Fault]:
    """A root thread begins on an empty segment."""
    id, segment = event["thread"], event["segment"]
    if id in world.threads or segment in world.segments:
        yield Fault("OCT601", f"thread {id} or segment {segment} begins a second time", ("thread",))
    world.segments[segment] = TracedSegment(parent=None, start_position=0, writer=id)
    start = Place(segment, 0)
    world.threads[id] = TracedThread(cursor=start, fork=start, parent=None)


def on_adopt(world: World, event: Event) -> Iterator[Fault]:
    """A root thread begins at a place that holds the beginning of its tokens, all of which are its own."""
    id, (place,) = event["thread"], places(event, "")
    if id in world.threads:
        yield Fault("OCT601", f"thread {id} begins a second time", ("adopt",))
    yield from _exists(world, place, "a thread")
    world.hand_out(place)
    path = world.path(place)
    world.threads[id] = TracedThread(cursor=place, fork=Place(path[0].segment, 0) if path else place, parent=None)


def on_fork(world: World, event: Event) -> Iterator[Fault]:
    """Children begin at a place of the parent: its cursor, or a version of it."""
    parent = world.thread(event["parent"])
    (place,) = places(event, "")
    yield from _exists(world, place, "a fork")
    if place != parent.cursor and place not in parent.versions.values():
        yield Fault(
            "OCT607",
            f"the children of thread {event['parent']} begin at {say(place)}, which it neither stands on nor published",
            ("fork",),
        )
    world.hand_out(place)
    for child in event["children"]:
        if child in world.threads:
            yield Fault("OCT601", f"thread {child} begins a second time", ("fork",))
        world.threads[child] = TracedThread(cursor=place, fork=place, parent=event["parent"])


def on_open(world: World, event: Event) -> Iterator[Fault]:
    """A segment is opened where its writer stands."""
    thread = world.thread(event["thread"])
    (parent,) = places(event, "parent_")
    if event["segment"] in world.segments:
        yield Fault("OCT601", f"segment {event['segment']} is opened a second time", ("open",))
        return
    yield from _exists(world, parent, "a segment")
    if parent != thread.cursor:
        yield Fault(
            "OCT607",
            f"segment {event['segment']} continues {say(parent)}, its writer stands at {say(thread.cursor)}",
            ("open",),
        )
    world.hand_out(parent)
    world.segments[event["segment"]] = TracedSegment(
        parent=parent, start_position=event["start_position"], writer=event["thread"]
    )
    thread.cursor = Place(event["segment"], 0)


def on_append(world: World, event: Event) -> Iterator[Fault]:
    """Tokens are written at the end of the writer's own segment."""
    thread, segment = world.thread(event["thread"]), world.segment(event["segment"])
    id, start, count = event["segment"], event["start"], len(event["tokens"])
    if segment.writer != event["thread"]:
        message = f"thread {event['thread']} writes to segment {id} of thread {segment.writer}"
        yield Fault("OCT606", message, ("two writers",))
    if start != segment.length:
        what = "overwrites what stands there" if start < segment.length else "leaves a gap"
        message = f"an append to segment {id} at offset {start}, which holds {segment.length}: it {what}"
        yield Fault("OCT606", message, (what,))
    if start < segment.published:
        message = f"an append at offset {start} of segment {id}, published up to {segment.published}"
        yield Fault("OCT706", message, ("append",))
    segment.writes.append((start, event["order"]))
    segment.length = max(segment.length, start + count)
    thread.cursor = Place(id, start + count)


def on_mark(world: World, event: Event) -> Iterator[Fault]:
    """A place gets a name."""
    (place,) = places(event, "")
    yield from _exists(world, place, "a mark")
    yield from _stands(world, event, place)


def on_turn(world: World, event: Event) -> Iterator[Fault]:
    """A turn ends at a place of the thread's path; while its own segment is empty, at the end of the one before."""
    (place,) = places(event, "")
    yield from _exists(world, place, "a turn")


def on_rewind(world: World, event: Event) -> Iterator[Fault]:
    """A thread goes back, not beyond its fork point."""
    left, place = places(event, "from_", "")
    thread = world.thread(event["thread"])
    yield from _stands(world, event, left)
    yield from _exists(world, place, "a rewind")
    fork = world.path(thread.fork)
    if not _prefix(fork, world.path(place)):
        message = f"thread {event['thread']} rewinds to {say(place)}, beyond its fork point {say(thread.fork)}"
        yield Fault("OCT607", message, ("rewind",))
    thread.cursor = place


def on_commit(world: World, event: Event) -> Iterator[Fault]:
    """A version of where the thread stands, with a digest."""
    thread = world.thread(event["thread"])
    (place,) = places(event, "")
    yield from _exists(world, place, "a commit")
    yield from _stands(world, event, place)
    if event["version"] <= thread.version:
        message = f"thread {event['thread']} commits version {event['version']} after {thread.version}"
        yield Fault("OCT605", message, ("commit",))
    segment = world.segment(place.segment)
    known = segment.digests.setdefault(place.length, event["digest"])
    if known != event["digest"]:
        message = f"{say(place)} was committed with digest {known[:12]} and now with {event['digest'][:12]}"
        yield Fault("OCT612", message, ("digest",))
    thread.publish(event["version"])
    world.hand_out(place)
    if not event["keep_running"]:
        thread.status = "committed"


def say(place: Place) -> str:
    """A place for a sentence."""
    return f"length {place.length} of segment {place.segment}"


def _exists(world: World, place: Place, what: str) -> Iterator[Fault]:
    length = world.segment(place.segment).length
    if place.length > length:
        yield Fault("OCT607", f"{what} at {say(place)}, which holds {length} tokens", (what,))


def _stands(world: World, event: Event, place: Place) -> Iterator[Fault]:
    cursor = world.thread(event["thread"]).cursor
    if place != cursor:
        message = f"{event['kind']} of thread {event['thread']} at {say(place)}, but it stands at {say(cursor)}"
        yield Fault("OCT607", message, (event["kind"],))


def _prefix(short: list[Share], path: list[Share]) -> bool:
    """Whether a path runs through the place at which the short one ends."""
    if not short:
        return True
    segment, _, stop = short[-1]
    return any(share.segment == segment and share.stop >= stop for share in path)
