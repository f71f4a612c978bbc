"""Contamination is found: before it is read when every read is checked, soon when some are."""

from __future__ import annotations

from unittest import mock

import pytest
from core.content import PAGE, ContentEngine

from octopus.core.errors import Contamination, InvariantViolation
from octopus.core.pool import unit_of
from octopus.core.seals import Seals
from octopus.core.thread import Thread


def crowd(engine: ContentEngine) -> list[Thread]:
    """Two branches of a long root."""
    root = engine.thread([1] * 160)
    branches = engine.graph.fork(root, 2)
    for number, branch in enumerate(branches):
        engine.graph.append(branch, [number] * 3)
    engine.compute(*branches)
    return [root, *branches]


def refused(engine: ContentEngine, thread: Thread) -> bool:
    """Whether the thread's next step finds something."""
    try:
        engine.compute(thread)
    except Contamination:
        return True
    return False


def flip(engine: ContentEngine, thread: Thread, page: int) -> None:
    place = (unit_of(thread.cursor.segment.pages[page]), 1)
    engine.memory.slots[place] ^= 1


def test_a_flipped_byte_is_found_before_anything_is_computed() -> None:
    """Catches: a step that computes first and checks afterwards; one that looks at its own pages only."""
    engine = ContentEngine(pages=60, rate=1.0)
    root, one, two = crowd(engine)
    flip(engine, root, 20)
    before = engine.graph.stats().counters.tokens_computed
    for thread in (one, two):
        engine.graph.append(thread, [5])
        with pytest.raises(Contamination, match=rf"memory has changed: .*segment=0.* by threads \[{thread.id}\]"):
            engine.compute(thread)
    assert engine.graph.stats().counters.tokens_computed == before
    engine.graph.audit()


@pytest.mark.parametrize("page", [0, 13, 39])
def test_a_flipped_byte_is_found_within_as_many_reads_as_the_rate_says(page: int) -> None:
    """Catches: a choice that never falls on some pages."""
    engine = ContentEngine(pages=60, rate=1 / 16)
    root, one, _ = crowd(engine)
    flip(engine, root, page)
    reads = next(read for read in range(1, 18) if refused(engine, one))
    assert reads <= 16
    assert engine.graph.stats().counters.seals_checked <= 3 + reads * (41 // 16 + 1)


def test_a_page_is_looked_at_however_the_others_grow() -> None:
    """Catches: a turn counted in the pages seen before this one, which grow as fast as the turns go round."""
    engine = ContentEngine(pages=200, rate=1 / 16)
    root = engine.thread([1] * PAGE)
    *writers, victim = engine.graph.fork(root, PAGE + 1)
    for number, writer in enumerate(writers):
        engine.graph.append(writer, [2] * (number + 1))
    engine.graph.append(victim, [3] * 8 * PAGE)
    engine.compute(*writers, victim)
    flip(engine, victim, 5)
    for read in range(1, 18):  # Every step one of the writers begins a page.
        for writer in writers:
            engine.graph.append(writer, [read])
        try:
            engine.compute(*writers, victim)
        except Contamination:
            break
    assert read <= 16


def test_a_page_that_lies_in_two_tables_is_found() -> None:
    """Catches: a page whose bytes are in order, but are somebody else's."""
    engine = ContentEngine(pages=60, rate=1.0)
    _, one, two = crowd(engine)
    own = one.cursor.segment.pages[0]
    one.cursor.segment.pages[0] = two.cursor.segment.pages[0]
    with pytest.raises(Contamination):
        engine.compute(one)
    with pytest.raises(InvariantViolation, match="two owners"):
        engine.graph.audit()
    one.cursor.segment.pages[0] = own
    engine.graph.audit()


def test_a_stale_generation_is_found() -> None:
    """Catches: an audit that compares units and forgets whose turn it is."""
    engine = ContentEngine(pages=60)
    _, one, _ = crowd(engine)
    pool, pages = engine.graph.retention.pages, one.cursor.segment.pages
    pool.release(pages)
    (pages[0:1],) = [pool.allocate(1)]
    pages[0] -= 1 << 32
    with pytest.raises(InvariantViolation, match="owned by handles that are not current"):
        engine.graph.audit()


def test_only_what_was_computed_is_looked_at() -> None:
    """Catches: a fingerprint of slots that were never written, or of a page's new owner."""
    engine = ContentEngine(pages=45, rate=1.0)
    _, one, two = crowd(engine)
    engine.graph.rewind(one, 1)
    for number in range(6):
        engine.graph.append(one, [number])
        engine.compute(one, two)
        engine.graph.rewind(one, number % 2)
    engine.graph.drop(two)
    engine.graph.append(one, [1] * 2 * PAGE)
    engine.compute(one)
    stats = engine.graph.stats().counters
    assert stats.seals_checked > 200 and stats.seals_broken == 0


def test_at_rate_nothing_only_what_comes_back_is_checked() -> None:
    """Catches: a rate of 0 that divides by it, or one that switches the check of restores off."""
    engine = ContentEngine(pages=60, rate=0.0, host_pages=60)
    root, one, _ = crowd(engine)
    flip(engine, root, 3)
    engine.compute(one)
    assert engine.graph.stats().counters.seals_checked == 0
    engine.graph.preempt(one)
    engine.compute(one)
    assert engine.graph.stats().counters.seals_checked == 1
    for rate in (-0.1, 1.5):
        with pytest.raises(ValueError, match="rate is a share from 0 to 1"):
            Seals(engine.memory, rate=rate)


def test_which_step_looks_at_which_page_is_told_beforehand() -> None:
    """Catches: a turn that hangs on anything but the page, or falls on a segment's pages in another order than said."""
    engine, steps = ContentEngine(pages=20, rate=1 / 4), range(1, 9)
    threads = [engine.thread([number] * 3 * PAGE) for number in range(3)]
    for step in steps:
        with mock.patch.object(engine.memory, "broken", wraps=engine.memory.broken) as asked:
            engine.compute(*threads)
        looked_at = {(run.segment, run.offset // PAGE) for call in asked.mock_calls for run in call.args[0]}
        pages = {(segment, page) for segment in range(3) for page in range(3) if (segment + page) % 4 == step % 4}
        assert looked_at == (set() if step == 1 else pages), "in the first step nothing is computed yet"


@pytest.mark.parametrize("rate", [0.0, 1.0])
def test_of_nothing_nothing_is_broken(rate: float) -> None:
    """Catches: an answer that is no list, and a count of what was not compared."""
    engine = ContentEngine(pages=20, rate=rate)
    segment = engine.thread([1]).cursor.segment
    seals = engine.graph.retention.swapping.seals
    assert seals is not None
    assert seals.broken_among({}) == seals.broken(segment, {}, {}) == seals.broken_among({segment: 1}) == []
    assert engine.graph.stats().counters.seals_checked == 0
