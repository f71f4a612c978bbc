"""Which recurrent states stay: fork points with living children, held commits, two turn boundaries, the newest."""

from __future__ import annotations

import pytest
from core.content import ContentEngine

from octopus.core.errors import RewindRefused
from octopus.core.thread import Thread


def engine_with(states: int = 30) -> ContentEngine:
    return ContentEngine(pages=3000, states=states, chunk_tokens=100)


def spread(engine: ContentEngine, thread: Thread, turns: int) -> None:
    """So many turns of three tokens each, computed turn by turn."""
    for _ in range(turns):
        engine.graph.append(thread, [1] * 3)
        engine.graph.end_turn(thread)
        engine.compute(thread)


def kept(thread: Thread) -> set[int]:
    return set(thread.cursor.segment.states)


def squeeze(engine: ContentEngine) -> None:
    """Asks for as many slots as can be had without taking one from a running thread."""
    graph = engine.graph
    graph.retention.checkpoints.drop_idle(graph.retention.states.capacity, frozenset())
    graph.audit()


def test_the_last_two_turn_boundaries_are_kept() -> None:
    """Catches: a boundary that is kept for ever, or only as long as the thread stands on it."""
    engine = engine_with()
    thread = engine.thread([])
    spread(engine, thread, 5)
    engine.graph.append(thread, [1])
    engine.compute(thread)
    assert engine.graph.stats().states_idle > 0
    squeeze(engine)
    assert kept(thread) == {12, 15, 16}
    engine.graph.rewind(thread, 12, recompute=False)
    assert thread.turns == ((thread.cursor.segment, 12),)
    engine.graph.append(thread, [2])
    engine.compute(thread)
    with pytest.raises(RewindRefused, match="no recurrent state is kept"):
        engine.graph.rewind(thread, 9, recompute=False)


def test_a_pass_over_a_turn_boundary_leaves_a_state_there() -> None:
    """Catches: boundaries of turns that were recorded together, and are computed as one stretch."""
    engine = engine_with()
    thread = engine.thread([1] * 3)
    engine.graph.end_turn(thread)
    engine.graph.append(thread, [1] * 4)
    engine.compute(thread)
    assert kept(thread) == {3, 7}


def test_turns_go_with_their_thread() -> None:
    """Catches: an ended thread whose boundaries keep states that nobody can rewind to."""
    engine = engine_with()
    thread = engine.thread([])
    spread(engine, thread, 2)
    segment = thread.cursor.segment
    engine.graph.commit(thread)
    squeeze(engine)
    assert set(segment.states) == {6} and not segment.turns  # The commit holds the place it stands at.
    engine.graph.drop(thread)
    squeeze(engine)
    assert not segment.states


def test_a_fork_point_keeps_its_state_while_a_child_lives() -> None:
    """Catches: a state given up under a child that has not copied it; one that only dead children keep."""
    engine = engine_with(states=6)
    graph = engine.graph
    root = engine.thread([1] * 3)
    engine.compute(root)
    (child,) = graph.fork(root)
    graph.append(root, [2] * 3)
    engine.compute(root)
    squeeze(engine)
    assert kept(root) == {3, 6}
    graph.append(child, [3])
    engine.compute(child)
    graph.drop(child)
    squeeze(engine)
    assert kept(root) == {3, 6}  # The cached line stands there still ...
    pages = graph.stats().pages.used
    dropped = graph.retention.checkpoints.drop_dead(6, graph.segments, frozenset())
    assert dropped == 1 and kept(root) == {6}  # ... and gives way before any page does.
    assert graph.stats().pages.used == pages
    graph.audit()


def test_what_goes_first_was_needed_least_recently() -> None:
    """Catches: giving up the state that is most likely to be gone back to."""
    engine = engine_with(states=5)
    graph = engine.graph
    threads = [engine.thread([number] * 3) for number in range(4)]
    engine.compute(*threads)
    segments = [thread.cursor.segment for thread in threads]
    for thread in (threads[2], threads[0]):
        graph.drop(thread)
    late = engine.thread([9])
    graph.make_room(states=2)
    assert [bool(segment.states) for segment in segments] == [True, True, False, True]
    engine.compute(late)


def test_dropping_many_states_costs_nothing_for_those_that_stay() -> None:
    """Catches: a walk over all segments for each state that is given up."""
    engine = engine_with(states=3000)
    graph = engine.graph
    root = engine.thread([1])
    children = [child for _ in range(2) for child in graph.fork(root, 1000)]
    for child in children:
        graph.append(child, [2])
    engine.compute(*children)
    for child in children[::2]:
        graph.rewind(child, 0)
    assert graph.retention.checkpoints.drop_idle(1500, frozenset()) == 1500 - (3000 - 2001)


def test_a_state_that_was_spared_is_still_the_next_to_go() -> None:
    """Catches: a state that a step needed for a moment, and that outlives younger ones for that."""
    engine = engine_with()
    thread = engine.thread([])
    spread(engine, thread, 5)
    assert kept(thread) == {3, 6, 9, 12, 15}
    checkpoints, pool = engine.graph.retention.checkpoints, engine.graph.retention.states
    assert checkpoints.drop_idle(pool.free + 1, {(thread.cursor.segment, 3)}) == 1
    assert kept(thread) == {3, 9, 12, 15}
    assert checkpoints.drop_idle(pool.free + 1, frozenset()) == 1
    assert kept(thread) == {9, 12, 15}
    engine.graph.audit()
