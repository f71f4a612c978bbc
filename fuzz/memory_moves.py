"""Operations on memory: steps, eviction, copies, preemption and planted failures. The model hears of none of them."""

from __future__ import annotations

from fuzz.copier import OUTCOMES
from fuzz.device import TORN
from fuzz.world import NO_HOST, World
from octopus.core.errors import NotRunning


def compute(world: World, thread: int, other: int, hidden: int) -> None:
    """KV (and state) of all that two threads have recorded; with `hidden`, their last tokens pass in any case.

    In an open step it is one more pass of that.
    """
    if world.engine.step is not None:
        world.engine.advance()
        return
    ready = world.pick_ready(thread, other)
    threads = [pair.ours for pair in ready]
    if world.if_there_is_room(lambda: world.engine.compute(threads, hidden=threads if hidden else ())):
        for pair in ready:
            assert world.graph.is_computed(pair.ours.cursor), f"{pair.ours} is not computed after a step"


def begin_step(world: World, thread: int, other: int) -> None:
    """A step whose passes are made by and by, while other things happen."""
    if world.engine.step is None:
        ready = [pair.ours for pair in world.pick_ready(thread, other)]
        world.if_there_is_room(lambda: world.engine.open(ready))


def pass_(world: World) -> None:
    """One pass of the open step."""
    if world.engine.step is not None:
        world.engine.advance()


def end_step(world: World) -> None:
    """The open step ends, with or without its last passes."""
    if world.engine.step is not None:
        world.engine.close()


def end_turn(world: World, thread: int) -> None:
    """A turn boundary."""
    pair = world.pick(thread)
    if pair is not None:
        world.both(lambda: world.graph.end_turn(pair.ours), lambda: world.model.running(pair.theirs))


def prioritise(world: World, thread: int, priority: int) -> None:
    """Another priority."""
    pair = world.pick(thread)
    if pair is not None:
        world.graph.set_priority(pair.ours, priority)


def offload(world: World, thread: int) -> None:
    """What only a thread that does not run holds begins to go to the host."""
    idle = [pair for pair in world.pairs if pair.theirs.status in ("waiting", "committed")]
    if idle and world.setup.host_pages != NO_HOST:
        world.if_there_is_room(lambda: world.graph.offload(idle[thread % len(idle)].ours))


def deliver(world: World, transfer: int, outcome: int) -> None:
    """A copy gets its outcome."""
    pending = world.copier.pending
    if pending:
        world.copier.deliver(transfer % len(pending), OUTCOMES[outcome])


def deliver_late(world: World) -> None:
    """Copies that had their outcome get it again."""
    world.copier.repeat()


def copier_fails(world: World, fails: int) -> None:
    """Copies cannot even be started, or can be again."""
    world.copier.refuses = bool(fails)


def spoil_host(world: World, page: int) -> None:
    """A host page loses its content, if its loss can be noticed and mended."""
    if world.setup.sealed and world.setup.host_pages > 0:
        world.copier.host.pages[page % world.setup.host_pages][0] = TORN


def preempt(world: World, thread: int) -> None:
    """A thread gives up its private memory; it stays what it is."""
    pair = world.pick(thread)
    if pair is None:
        return
    status, priority = pair.ours.status, pair.ours.priority
    if pair.theirs.ended:
        try:
            world.graph.preempt(pair.ours)
        except NotRunning:
            return
        raise AssertionError("a thread that has ended was preempted")
    world.if_there_is_room(lambda: world.graph.preempt(pair.ours))
    assert (pair.ours.status, pair.ours.priority) == (status, priority), f"{pair.ours} changed when it was preempted"


def make_room(world: World, pages: int, states: int) -> None:
    """Runs the ladder; after a success so much is free."""
    pool = world.pages
    if world.if_there_is_room(lambda: world.graph.make_room(pages=pages, states=states if world.states else 0)):
        assert pool.free >= pages, f"made room for {pages} pages, {pool.free} are free"
        assert world.states is None or world.states.free >= states


def evict(world: World) -> None:
    """The least recently used cached leaf goes; what is being copied stays until it is there."""
    free_to_go = set(world.graph.retention.cached) - {transfer.segment for transfer in world.graph.transfers}
    assert world.graph.evict() == bool(free_to_go), f"{len(free_to_go)} segments can go, and evict said something else"


def trim(world: World) -> None:
    """All cached segments go."""
    world.graph.trim()
    assert set(world.graph.retention.cached) <= {transfer.segment for transfer in world.graph.transfers}


def fail_allocation(world: World, countdown: int, persistent: int) -> None:
    """One of the next allocations fails, or all from there on."""
    world.failure.arm(countdown, persistent=bool(persistent))


def heal(world: World) -> None:
    """Allocations and copies work again."""
    world.failure.heal()
    world.copier.refuses = False
