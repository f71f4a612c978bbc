"""Pages and states under random histories, without a model: a pretended engine writes what it computes."""

from __future__ import annotations

import random

import pytest

from octopus.core.cursor import Cursor
from octopus.core.errors import CapacityExceeded, InvariantViolation, RewindRefused
from octopus.core.graph import Graph
from octopus.core.pool import NO_PAGE, PagePool, StatePool
from octopus.core.reservation import state_place
from octopus.core.thread import Status, Thread
from octopus.core.visibility import view

PAGE = 4


class PretendedEngine:
    """Writes (segment, offset) into each computed slot, and (segment, length) into each state slot."""

    def __init__(self, *, pages: int, states: int | None, chunk_tokens: int = 6) -> None:
        self.pool = PagePool(pages, page_size=PAGE)
        self.states = None if states is None else StatePool(states)
        self.graph = Graph(pages=self.pool, states=self.states)
        self.slots: dict[tuple[int, int], tuple[int, int]] = {}
        self.state_of: dict[int, tuple[int, int]] = {}
        self.chunk_tokens = chunk_tokens
        self.fail_at: int | None = None

    def compute(self, *threads: Thread) -> None:
        with self.graph.begin_step(threads, chunk_tokens=self.chunk_tokens) as step:
            for wave in step.waves:
                for stretch in wave:
                    self.write(stretch, step)

    def write(self, stretch, step) -> None:
        segment, start, stop, again = stretch
        move = step.state_move(stretch)
        if self.fail_at is not None:
            self.fail_at -= 1
            if self.fail_at < 0:
                self.state_of[move.write] = (-1, -1)  # Half written.
                raise RuntimeError("the pass failed")
        place = state_place(stretch)
        if self.states is not None and place is not None:
            assert self.state_of[move.read] == (place[0].index, place[1]), "started from another's state"
        for part in view(type(segment.jump)(segment, start)):
            self.expect(part.segment, part.start, part.stop)
        for offset in range(start, stop):
            if not again:
                self.slots[self.slot(segment, offset)] = (segment.index, offset)
        if self.states is not None:
            self.state_of[move.write] = (segment.index, stop)
        step.publish(stretch)

    def slot(self, segment, offset: int) -> tuple[int, int]:
        handle = segment.pages[offset // PAGE]
        assert handle != NO_PAGE, f"{segment} has no page for visible offset {offset}"
        return self.pool.unit(handle), offset % PAGE

    def expect(self, segment, start: int, stop: int) -> None:
        for offset in range(start, stop):
            assert self.slots[self.slot(segment, offset)] == (segment.index, offset), "somebody else's slot"

    def check_views(self) -> None:
        """Everything computed that a living thread or snapshot sees is still where it was written."""
        for thread in self.graph.threads:
            cursors = [snapshot.cursor for snapshot in thread.snapshots.values()]
            cursors += [] if thread.status.terminal else [thread.cursor]
            for part in (part for cursor in cursors for part in view(cursor)):
                self.expect(part.segment, part.start, min(part.stop, part.segment.computed))


def random_history(engine: PretendedEngine, seed: int, calls: int) -> int:
    """Random calls; returns how many were refused for want of memory."""
    rng, graph, refused = random.Random(seed), engine.graph, 0
    threads: list[Thread] = []
    for _ in range(calls):
        running = [thread for thread in threads if thread.status is Status.RUNNING]
        if not running:
            threads.append(graph.thread())
            continue
        thread = rng.choice(running)
        kind = rng.choices(
            ["append", "compute", "fork", "read", "rewind", "commit", "drop", "cancel"], [6, 6, 3, 4, 3, 2, 3, 0.3]
        )[0]
        try:
            if kind == "append":
                graph.append(thread, [0] * rng.choice((1, 1, 3, 9)))
            elif kind == "compute":
                engine.compute(*{rng.choice(running) for _ in range(3)})
            elif kind == "fork":
                threads += graph.fork(thread, rng.randint(1, 2))
            elif kind == "read":
                sources = [t for t in threads if t.status in (Status.RUNNING, Status.COMMITTED)]
                graph.read_thread(thread, rng.choice(sources), last=rng.choice((None, 2, 5)))
            elif kind == "rewind":
                graph.rewind(thread, rng.randint(0, thread.own_tokens))
            elif kind == "commit":
                engine.compute(thread)
                graph.commit(thread, keep_running=rng.random() < 0.5)
            elif kind == "drop":
                victim = threads.pop(rng.randrange(len(threads)))
                graph.drop(victim)
            else:
                graph.cancel(thread)
        except CapacityExceeded:
            refused += 1
            graph.drop(threads.pop(rng.randrange(len(threads))))
        graph.check()
        engine.check_views()
    return refused


@pytest.mark.parametrize(
    ("pages", "states", "tight"), [(10, None, True), (400, None, False), (20, 5, True), (400, 200, False)]
)
def test_nothing_visible_is_ever_given_back_or_overwritten(pages: int, states: int | None, tight: bool) -> None:
    """Catches: freeing by a count instead of by lengths, evicting what a mount shows, advancing a shared state."""
    refused = sum(random_history(PretendedEngine(pages=pages, states=states), seed, 80) for seed in range(30))
    assert (refused > 20) == tight, f"{refused} refusals"


@pytest.mark.parametrize("states", [None, 60], ids=["attention", "hybrid"])
def test_a_failed_pass_leaves_everything_usable(states: int | None) -> None:
    """Catches: pages or slots lost when the n-th pass fails, and a half-overwritten state that is used again."""
    for failing in range(12):
        engine = PretendedEngine(pages=60, states=states, chunk_tokens=3)
        graph = engine.graph
        root = graph.thread()
        graph.append(root, [0] * 10)
        engine.compute(root)
        one, two = graph.fork(root, 2)
        graph.append(one, [0] * 5)
        graph.append(two, [0] * 5)
        graph.append(root, [0] * 5)
        graph.read_thread(two, one)
        graph.append(two, [0] * 2)
        engine.fail_at = failing
        try:
            engine.compute(two, root)
            assert failing > 4
        except RuntimeError:
            graph.check()
            engine.check_views()
        engine.fail_at = None
        engine.compute(two, root)
        graph.check()
        engine.check_views()
        graph.commit(two)


def test_the_primitives_take_no_memory() -> None:
    """Catches: a fork that copies a page table or a state, a read that allocates, a commit that copies."""
    engine = PretendedEngine(pages=50, states=50)
    graph = engine.graph
    root = graph.thread()
    graph.append(root, [0] * 30)
    engine.compute(root)
    children = graph.fork(root, 8)
    for child in children:
        graph.append(child, [1] * 3)
    engine.compute(*children)
    before = (engine.pool.free, engine.states.free)
    graph.fork(children[0], 100)
    for child in children[1:]:
        graph.read_thread(children[0], child)
    for child in children[1:]:
        graph.commit(child)
    graph.wait_threads(root, children[1:])
    graph.rewind(children[0], 0)
    assert (engine.pool.free, engine.states.free) == before


def test_pages_beyond_the_visible_end_are_free_at_once() -> None:
    """Catches: keeping what only an abandoned line wrote; freeing what a child still sees."""
    engine = PretendedEngine(pages=50, states=None)
    graph = engine.graph
    root = graph.thread()
    graph.append(root, [0] * 40)
    engine.compute(root)
    mark = graph.mark(root)
    graph.rewind(root, 12)
    assert engine.pool.used == 3
    assert mark.cursor.segment.computed == 12
    (child,) = graph.fork(root)
    graph.append(child, [0])
    graph.rewind(root, 4)
    assert engine.pool.used == 3


def test_pages_before_the_first_mounted_token_are_given_back() -> None:
    """Catches: a mount of the last tokens that keeps the whole source."""
    engine = PretendedEngine(pages=60, states=None)
    graph = engine.graph
    root = graph.thread()
    graph.append(root, [0] * 4)
    source, reader = graph.fork(root, 2)
    graph.append(source, [0] * 41)
    graph.read_thread(reader, source, last=6)
    graph.append(reader, [0])
    graph.drop(source)
    assert engine.pool.used == 0  # Nothing is computed yet, and the source's tail needs what precedes it.
    engine.compute(reader)
    assert engine.pool.used == 1 + 3 + 1
    engine.check_views()


def test_a_dropped_line_is_cache_until_somebody_needs_the_room() -> None:
    """Catches: drop paying for the cascade, or eviction that stops at the first leaf."""
    engine = PretendedEngine(pages=10, states=None)
    graph = engine.graph
    thread = graph.thread()
    for _ in range(5):
        graph.append(thread, [0] * 4)
        engine.compute(thread)
        (child,) = graph.fork(thread)
        graph.drop(thread)
        thread = child
    graph.drop(thread)
    assert engine.pool.used == 5 and len(graph.retention.cached) == 1
    fresh = graph.thread()
    graph.append(fresh, [0] * 40)
    engine.compute(fresh)
    assert engine.pool.used == 10
    graph.check()


def test_too_small_a_pool_names_need_and_holders_and_changes_nothing() -> None:
    """Catches: a prompt that takes the pages there are and then fails in the middle."""
    engine = PretendedEngine(pages=8, states=None)
    graph = engine.graph
    holder = graph.thread()
    graph.append(holder, [0] * 12)
    engine.compute(holder)
    prompt = graph.thread()
    graph.append(prompt, [0] * 33)
    message = (
        r"^need 9 pages of 4 tokens, 5 of 8 are free; dropping threads cannot help: build the engine with more pages$"
    )
    with pytest.raises(CapacityExceeded, match=message):
        engine.compute(prompt)
    assert engine.pool.used == 3 and prompt.cursor.segment.computed == 0
    graph.check()


def test_the_audit_sees_a_lost_page_and_a_wrong_count() -> None:
    """Catches: a check that cannot fail."""
    engine = PretendedEngine(pages=8, states=None)
    graph = engine.graph
    thread = graph.thread()
    graph.append(thread, [0] * 8)
    engine.compute(thread)
    segment = thread.cursor.segment
    lost = segment.pages.pop()
    with pytest.raises(InvariantViolation, match="has 1 pages, computed needs 2"):
        graph.check()
    segment.pages.append(lost)
    extra = engine.pool.allocate(1)
    with pytest.raises(InvariantViolation, match="pages allocated but owned by nobody"):
        graph.check()
    engine.pool.release(extra)
    graph.retention.hold(Cursor(segment, 3))
    with pytest.raises(InvariantViolation, match=r"counts references \[3\], found \[\]"):
        graph.check()


def test_what_was_never_computed_needs_no_state() -> None:
    """Catches: a rewind that is refused for a recompute, though the tokens in question have never been computed."""
    engine = PretendedEngine(pages=8, states=8)
    graph = engine.graph
    thread = graph.thread()
    graph.append(thread, [0] * 3)
    graph.rewind(thread, 2, recompute=False)
    graph.append(thread, [0] * 3)
    engine.compute(thread)
    graph.append(thread, [0] * 3)
    graph.rewind(thread, 6, recompute=False)
    with pytest.raises(RewindRefused, match="no recurrent state is kept"):
        graph.rewind(thread, 4, recompute=False)
