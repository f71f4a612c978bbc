"""The memory ladder: which rung, whom it hits, and what a refusal leaves behind."""

from __future__ import annotations

import itertools

import pytest
from core.content import ContentEngine

from octopus.core.errors import CapacityExceeded, NotRunning
from octopus.core.ladder import Ladder
from octopus.core.step import Step
from octopus.core.thread import Status


def test_the_least_important_and_youngest_goes_first_and_keeps_its_priority() -> None:
    """Catches: preempting the oldest, or whoever comes first; a priority that a preemption changes."""
    engine = ContentEngine(pages=8)
    graph = engine.graph
    high, low, young = engine.thread([1] * 8, priority=5), engine.thread([2] * 8), engine.thread([3] * 8)
    engine.compute(high, low, young)
    graph.set_priority(young, 1)
    (child,) = graph.fork(young)
    late = engine.thread([4] * 16)
    engine.compute(late)
    assert [thread.preempted for thread in (high, low, young)] == [False, True, False]
    assert (low.priority, low.status, child.priority) == (0, Status.RUNNING, 1)
    graph.drop(late)
    engine.compute(low)
    assert not low.preempted
    graph.audit()


def test_a_request_that_preemption_cannot_meet_preempts_nobody() -> None:
    """Catches: threads that lose their memory for a step that is refused all the same."""
    engine = ContentEngine(pages=8)
    holder, running = engine.thread([1] * 16), engine.thread([2] * 8)
    engine.compute(holder, running)
    engine.graph.commit(holder)
    before = engine.graph.stats().pages
    with pytest.raises(CapacityExceeded, match=r"need 5 pages of 4 tokens, 2 of 8 are free; largest holders: thread 0"):
        engine.compute(engine.thread([3] * 20))
    stats = engine.graph.stats()
    assert stats.pages == before and not running.preempted and stats.counters.refused == 1
    engine.graph.audit()


def test_the_time_of_rungs_and_of_refusals_is_kept_apart() -> None:
    """Catches: time of a rung that gave nothing counted as of one that helped; a refusal without its rungs."""
    engine = ContentEngine(pages=8)
    holder, gone = engine.thread([1] * 16), engine.thread([2] * 8)
    engine.compute(holder, gone)
    engine.graph.commit(holder)
    engine.graph.drop(gone)
    ticks = itertools.count()
    ladder = engine.graph.retention.ladder = Ladder(engine.graph.retention, clock_s=lambda: float(next(ticks)))
    engine.graph.make_room(pages=3)
    assert dict(ladder.seconds) == {("evict", True): 1} and ladder.refused_s == 0
    with pytest.raises(CapacityExceeded):
        engine.graph.make_room(pages=5)
    assert ladder.seconds == {("evict", True): 1, ("evict", False): 1, ("offload", False): 1, ("preempt", False): 1}
    assert ladder.refused_s == 7, "from the beginning of the round to its end"


def test_more_than_there_is_is_refused_before_any_rung() -> None:
    """Catches: evicting everything for a request that no pool can meet."""
    engine = ContentEngine(pages=8)
    gone = engine.thread([1] * 8)
    engine.compute(gone)
    engine.graph.drop(gone)
    with pytest.raises(CapacityExceeded, match="dropping threads cannot help: build the engine with more pages"):
        engine.graph.make_room(pages=9)
    stats = engine.graph.stats()
    assert stats.pages_cached == 2 and stats.counters.evict_tried == 0


def test_cache_goes_least_recently_left_first_and_leaves_first() -> None:
    """Catches: evicting the newest line, or a parent before its child."""
    engine = ContentEngine(pages=12)
    graph = engine.graph
    lines = [engine.thread([number] * 8) for number in range(4)]
    engine.compute(*lines)
    (child,) = graph.fork(lines[2])
    graph.append(child, [9])
    engine.compute(child)
    for thread in (lines[2], lines[1], child, lines[0]):
        graph.drop(thread)
    order = []
    while graph.retention.cached:
        before = set(graph.segments)
        assert graph.evict()
        order += [segment.tokens[0] for segment in before - set(graph.segments)]
        graph.audit()
    assert order == [1, 9, 0, 2] and not graph.evict()


def test_a_preempted_thread_computes_again_what_it_alone_had() -> None:
    """Catches: dropping what a sibling or a mount still shows, or a parent under a computed child."""
    engine = ContentEngine(pages=40)
    graph = engine.graph
    root = engine.thread([1] * 6)
    one, two = graph.fork(root, 2)
    for number, thread in enumerate((one, two)):
        graph.append(thread, [number] * 6)
    engine.compute(one, two)
    graph.read_thread(two, one)
    graph.append(two, [5])
    engine.compute(two)
    assert graph.preempt(one) == 0  # Its sibling mounted all of it.
    assert graph.preempt(two) == 3
    assert graph.preempt(two) == 0
    graph.audit()
    assert engine.sample(one, two) == engine.sample(one, two)
    assert graph.stats().counters.tokens_recomputed == 7
    graph.commit(one)
    with pytest.raises(NotRunning, match="cannot preempt thread 1: it is committed"):
        graph.preempt(one)
    with pytest.raises(ValueError, match="thread 2 is running; preempt it instead"):
        graph.offload(two)


def test_a_thread_of_the_open_step_is_not_preempted() -> None:
    """Catches: memory taken away under the pass that uses it."""
    engine = ContentEngine(pages=8)
    thread = engine.thread([1] * 8)
    engine.compute(thread)
    engine.graph.append(thread, [2] * 3)
    with engine.graph.begin_step([thread]) as step:
        assert engine.graph.preempt(thread) == 0
        with pytest.raises(CapacityExceeded):
            engine.graph.make_room(pages=8)
        for wave in step.waves:
            for stretch in wave:
                engine.write(stretch, step)
    engine.graph.audit()


def test_what_a_step_frees_is_free_after_it() -> None:
    """Catches: a page that a launched kernel may still read, given to the next who asks."""
    engine = ContentEngine(pages=8)
    graph = engine.graph
    gone, thread = engine.thread([2] * 8), engine.thread([1] * 4)
    engine.compute(gone)
    with graph.begin_step([thread]) as step:
        graph.drop(gone)
        graph.trim()
        stats = graph.stats()
        assert (stats.pages.free, stats.pages.fenced, stats.pages.used) == (5, 2, 1)
        with pytest.raises(CapacityExceeded, match="5 of 8 are free, 2 more at the end of the open step"):
            graph.make_room(pages=7)
        graph.audit()
        engine.write(step.waves[0][0], step)
    graph.make_room(pages=7)
    assert graph.stats().pages.fenced == 0


def test_everything_fenced_evicts_no_more_than_is_asked_for() -> None:
    """Catches: victims whose pages are not free yet, so that the loop goes on until nobody is left."""
    engine = ContentEngine(pages=12)
    graph = engine.graph
    lines = [engine.thread([number] * 8) for number in range(4)]
    thread = engine.thread([9])
    engine.compute(*lines)
    for line in lines:
        graph.drop(line)
    with graph.begin_step([thread]):
        with pytest.raises(CapacityExceeded):
            graph.make_room(pages=5)
        assert graph.stats().pages.fenced == 2 and len(graph.retention.cached) == 3


def test_a_step_that_fails_gives_everything_back() -> None:
    """Catches: pins, fences or reservations that outlive an exception in the middle of a pass."""
    engine = ContentEngine(pages=20, states=5)
    graph = engine.graph
    thread = engine.thread([1] * 9)
    before = graph.stats()

    def failing() -> Step:
        with graph.begin_step([thread]) as step:
            step.state_move(step.waves[0][0])
            graph.audit()
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        failing()
    assert (graph.stats().pages, graph.stats().states) == (before.pages, before.states)
    graph.audit()
    engine.compute(thread)
    with graph.begin_step([thread]), pytest.raises(RuntimeError, match="has an open step already; close it first"):
        graph.begin_step([thread])
