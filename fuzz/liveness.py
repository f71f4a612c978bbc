"""The liveness phase: once all faults are off, a world must come to rest with every page free."""

from __future__ import annotations

from fuzz.comparison import compare
from fuzz.lines import Read, path
from fuzz.memory_moves import heal
from fuzz.thread_moves import drop_pair, tick
from fuzz.world import NO_HOST, Pair, World
from octopus.core.digest import Digests
from octopus.core.errors import CapacityExceeded, StillLoading
from octopus.core.segment import Segment


def come_to_rest(world: World) -> None:
    """Everybody finishes, everything is dropped, every page and state slot is free on both tiers."""
    heal(world)
    settle(world)
    compare(world)
    _compare_digests(world)
    _end_all_waits(world)
    while world.pairs:
        _finish_one(world)
    compare(world)
    world.copier.deliver_all()
    world.graph.trim()
    _expect_empty(world)


def _compare_digests(world: World) -> None:
    """A snapshot still hashes to what it did when it was made, and never to what something else hashes to."""
    lines: dict[bytes, tuple[tuple[int, int], ...]] = {}
    for pair in world.pairs:
        for snapshot, told in pair.snapshots:
            if told not in pair.theirs.snapshots:
                continue
            assert Digests().of(snapshot.cursor) == snapshot.digest, f"{snapshot.cursor} hashes to something else now"
            if not any(isinstance(entry, Read) for entry in told.line):
                meaning = tuple((token.value, token.position) for token in path(told.line))
                assert lines.setdefault(snapshot.digest, meaning) == meaning, "one digest for different tokens"


def settle(world: World) -> None:
    """Ends the open step, and lets the copies in flight arrive."""
    if world.engine.step is not None:
        while world.engine.advance():
            pass
        world.engine.close()
    world.copier.deliver_all()
    world.copier.prompt = True


def _end_all_waits(world: World) -> None:
    """Who waits without a deadline is cancelled, the others wait it out."""
    for pair in list(world.pairs):
        wait = pair.theirs.wait
        if wait is not None and wait.deadline_s is None:
            world.both(lambda: world.graph.cancel(pair.ours), lambda: world.model.cancel(pair.theirs))  # noqa: B023
    tick(world, seconds=1_000_000)
    assert all(pair.theirs.status != "waiting" for pair in world.pairs)


def _finish_one(world: World) -> None:
    """One thread is computed, commits and is dropped; if none can for want of memory, the youngest goes."""
    for pair in reversed(world.ready(world.pairs)):
        if _finish(world, pair):
            drop_pair(world, pair)
            return
    waiting = world.ready(world.pairs)
    drop_pair(world, waiting[-1] if waiting else world.pairs[-1])


def _finish(world: World, pair: Pair) -> bool:
    try:
        world.engine.compute([pair.ours])
    except (CapacityExceeded, StillLoading) as error:
        if world.setup.host_pages >= 2 * world.setup.pages and _pages_of(world, pair) <= world.setup.pages:
            raise AssertionError(f"{pair.ours} fits the pool, the host has room, and it cannot go on") from error
        return False
    done = world.both(lambda: world.graph.commit(pair.ours), lambda: world.model.commit(pair.theirs, None, False))
    assert done, "a computed thread could not be committed"
    return True


def _pages_of(world: World, pair: Pair) -> int:
    """At most so many pages are needed to compute all that the thread sees, and all that that was computed from.

    More than there are if that cannot be said: states may need more slots than there are.
    """
    if world.states is not None or world.setup.host_pages == NO_HOST:
        return world.setup.pages + 1
    ends: dict[Segment, int] = {}
    places = [pair.ours.cursor]
    while places:
        segment, length = places.pop()
        if ends.get(segment, -1) < length:
            ends[segment] = length
            places += [place for place in (segment.parent,) if place is not None]
            places += [mount.source for mount in segment.mounts]
    return sum(world.pages.pages_for(stop) for stop in ends.values())


def _expect_empty(world: World) -> None:
    for pool in (world.pages, world.states):
        assert pool is None or pool.free == pool.capacity, f"{pool.capacity - pool.free} {pool.noun} are used by nobody"
    assert not world.graph.segments and not world.graph.threads and not world.graph.transfers
    stats = world.graph.stats()
    for figures in (stats.pages, stats.states, stats.host_pages, stats.host_states):
        assert figures.free == figures.capacity, f"{figures} when nobody is left"
