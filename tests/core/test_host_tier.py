"""Pages and states that go to the host tier and come back: well, badly, late, twice, or never."""

from __future__ import annotations

import pytest
from core.content import PAGE, ContentEngine

from octopus.core.errors import CapacityExceeded, StillLoading
from octopus.core.host import HostTier, Transfer
from octopus.core.pool import NO_PAGE
from octopus.core.thread import Thread


def waiting(engine: ContentEngine, tokens: int = 10) -> tuple[Thread, Thread]:
    """A computed thread that waits for another."""
    thread, other = engine.thread([7] * tokens), engine.thread([1])
    engine.compute(thread, other)
    engine.graph.wait_threads(thread, [other])
    return thread, other


def resumed(engine: ContentEngine, thread: Thread, other: Thread) -> int:
    engine.graph.cancel(other)
    (token,) = engine.sample(thread)
    return token


def expected(tokens: int = 10) -> int:
    engine = ContentEngine(pages=40)
    return resumed(engine, *waiting(engine, tokens))


@pytest.mark.parametrize("states", [None, 8], ids=["attention", "hybrid"])
def test_what_waits_goes_and_comes_back_the_same(states: int | None) -> None:
    """Catches: a page freed before it was copied, copied to the wrong place, or not brought back before it is read."""
    plain = ContentEngine(pages=40, states=states)
    token = resumed(plain, *waiting(plain))
    engine = ContentEngine(pages=40, states=states, host_pages=10, host_states=4)
    thread, other = waiting(engine)
    before = engine.graph.stats()
    assert engine.graph.offload(thread) == 3
    engine.graph.audit()
    stats = engine.graph.stats()
    assert (before.pages.used - stats.pages.used, stats.host_pages.used) == (3, 3)
    segment = thread.cursor.segment
    assert segment.pages == [NO_PAGE] * 3 and sorted(segment.host_pages) == [0, 1, 2]
    assert len(segment.host_states) == (states is not None) == stats.host_states.used
    assert engine.graph.offload(thread) == 0
    assert resumed(engine, thread, other) == token
    for one in (plain, engine):  # The state comes back when somebody goes on from it.
        one.graph.append(one.graph.threads[0], [token])
    assert engine.sample(thread) == plain.sample(plain.graph.threads[0])
    engine.graph.audit()
    stats = engine.graph.stats()
    assert (stats.host_pages.used, stats.host_states.used, stats.counters.tokens_recomputed) == (0, 0, 0)


def test_three_round_trips_leave_no_trace() -> None:
    """Catches: a count that a trip raises and nobody lowers."""
    engine = ContentEngine(pages=40, host_pages=10)
    thread = engine.thread([7] * 10)
    engine.compute(thread)
    before = engine.graph.stats().pages, engine.graph.stats().host_pages
    for _ in range(3):
        assert engine.graph.preempt(thread) == 3
        assert engine.graph.preempt(thread) == 0
        engine.compute(thread)
        engine.graph.audit()
    stats = engine.graph.stats()
    assert (stats.pages, stats.host_pages) == before
    assert stats.counters.preempted_swapped == 3 and stats.counters.preempted_recomputed == 0


def test_a_failed_offload_changes_nothing() -> None:
    """Catches: a page taken for saved though its copy failed."""
    engine = ContentEngine(pages=40, host_pages=10)
    engine.memory.how = lambda transfer: transfer.complete(ok=False)
    thread, other = waiting(engine)
    before = engine.graph.stats().pages
    engine.graph.offload(thread)
    stats = engine.graph.stats()
    assert (stats.pages, stats.host_pages.used, stats.counters.offloads_failed) == (before, 0, 1)
    engine.graph.audit()
    assert resumed(engine, thread, other) == expected()


def test_a_copier_that_raises_has_failed() -> None:
    """Catches: an error of the device that escapes from a primitive and leaves a copy under way for ever."""
    engine = ContentEngine(pages=40, host_pages=10)

    def broken(transfer: Transfer) -> None:
        raise RuntimeError("no pinned memory")

    engine.memory.how = broken
    thread, other = waiting(engine)
    engine.graph.offload(thread)
    assert not engine.graph.transfers and engine.graph.stats().counters.offloads_failed == 1
    assert resumed(engine, thread, other) == expected()


def test_what_does_not_come_back_is_computed_again() -> None:
    """Catches: a slot that is read though its copy failed; a thread that is lost with its copy."""
    engine = ContentEngine(pages=40, host_pages=10)
    thread, other = waiting(engine)
    (child,) = engine.graph.fork(other)
    engine.graph.append(child, [3])
    engine.graph.read_thread(child, thread, last=3)
    engine.graph.append(child, [4])
    engine.compute(child)
    engine.graph.cancel(child)
    engine.graph.offload(thread)
    engine.memory.how = lambda transfer: transfer.complete(ok=transfer.kind == "offload")
    assert resumed(engine, thread, other) == expected()
    counters = engine.graph.stats().counters
    assert (counters.restores_failed, counters.tokens_recomputed) == (1, 10)
    engine.graph.audit()


def heir_of_three(*, failing: bool) -> tuple[list[int], int]:
    """What a grandchild says after its and its grandparent's memory was taken away, and failed to come back."""
    engine = ContentEngine(pages=60, host_pages=30)
    root = engine.thread([5] * 9)
    engine.compute(root)
    (child,) = engine.graph.fork(root)
    engine.graph.append(child, [6] * 7)
    (heir,) = engine.graph.fork(child)
    engine.graph.append(heir, [7] * 2)
    engine.compute(heir)
    engine.graph.drop(child)
    engine.graph.commit(root)
    engine.graph.preempt(heir)
    engine.graph.offload(root)
    lost = root.cursor.segment if failing else None
    engine.memory.how = lambda transfer: transfer.complete(ok=transfer.segment is not lost)
    engine.graph.append(heir, engine.sample(heir))
    engine.graph.audit()
    assert engine.graph.stats().counters.tokens_recomputed == (9 if failing else 0)
    return heir.cursor.segment.tokens, engine.read(heir.cursor.segment, 1)


def test_a_lost_ancestor_is_computed_again_before_it_is_read() -> None:
    """Catches: a child whose own tokens are there, so that nobody looks whether what they follow is."""
    assert heir_of_three(failing=True) == heir_of_three(failing=False)


@pytest.mark.parametrize("twist", ["byte", "swap"])
def test_a_changed_host_copy_is_found_and_never_read(twist: str) -> None:
    """Catches: a restore that is believed; a fingerprint that does not say whose the page is."""
    engine = ContentEngine(pages=40, host_pages=10)
    thread, other = waiting(engine)
    engine.graph.offload(thread)
    copies = engine.memory.host_pages
    one, two, *_ = copies
    if twist == "byte":
        value, seal = copies[one][1]
        copies[one][1] = (value ^ 1, seal)
    else:
        copies[one], copies[two] = copies[two], copies[one]
    assert resumed(engine, thread, other) == expected()
    counters = engine.graph.stats().counters
    assert counters.seals_broken >= 1 and counters.restores_failed == 1
    engine.graph.audit()


def test_a_second_completion_is_ignored_and_counted() -> None:
    """Catches: a page given back twice, or a failure reported after a success that takes the page away."""
    engine = ContentEngine(pages=40, host_pages=10)
    engine.memory.how = engine.memory.later
    thread, other = waiting(engine)
    engine.graph.offload(thread)
    (transfer,) = engine.memory.pending
    assert transfer.complete() and not transfer.complete() and not transfer.complete(ok=False)
    assert transfer.ok and engine.graph.stats().counters.completions_ignored == 2
    engine.graph.audit()
    engine.memory.how = Transfer.complete
    assert resumed(engine, thread, other) == expected()


def test_a_page_that_is_needed_while_it_leaves_is_simply_used() -> None:
    """Catches: a page taken away under a step that began while its copy was under way."""
    engine = ContentEngine(pages=40, host_pages=10, timeout_s=0)
    engine.memory.how = engine.memory.later
    thread, other = waiting(engine)
    engine.graph.offload(thread)
    assert resumed(engine, thread, other) == expected()
    engine.memory.pending[0].complete()
    engine.graph.audit()
    assert engine.graph.stats().host_pages.used == 0
    engine.graph.append(thread, [1])
    engine.compute(thread)


def test_a_state_that_a_copy_reads_is_not_overwritten() -> None:
    """Catches: a state advanced in place, or given to another, while it is copied."""
    engine = ContentEngine(pages=40, states=6, host_pages=10, host_states=4, timeout_s=0)
    engine.memory.how = engine.memory.later
    thread, other = waiting(engine)
    engine.graph.offload(thread)
    (transfer,) = engine.memory.pending
    ((unit, _),) = transfer.state_units
    value = engine.memory.states[unit]
    engine.graph.cancel(other)
    for _ in range(3):
        engine.graph.append(thread, [1])
        engine.compute(thread)
        engine.graph.audit()
    engine.graph.rewind(thread, 0)
    engine.graph.trim()
    assert engine.memory.states[unit] == value
    taken = engine.graph.retention.states.allocate(engine.graph.retention.states.free)
    assert unit not in {handle & 0xFFFFFFFF for handle in taken}
    engine.graph.retention.states.release(taken)
    transfer.complete()
    engine.graph.audit()


def test_a_restore_that_takes_long_says_so_and_works_later() -> None:
    """Catches: a step that reads what has not come back; device pages lost when it is refused."""
    engine = ContentEngine(pages=40, host_pages=10, timeout_s=0)
    thread, other = waiting(engine)
    engine.graph.offload(thread)
    engine.memory.how = engine.memory.later
    with pytest.raises(StillLoading, match="3 pages are still being copied; try again"):
        resumed(engine, thread, other)
    engine.graph.audit()
    with pytest.raises(StillLoading):
        engine.sample(thread)
    (transfer,) = engine.graph.transfers
    transfer.complete()
    assert engine.sample(thread) == [expected()]
    engine.graph.audit()


@pytest.mark.parametrize("kind", ["offload", "restore"])
@pytest.mark.parametrize("ok", [True, False])
def test_what_is_under_copy_is_nobody_elses(kind: str, ok: bool) -> None:
    """Catches: a unit that is given to another while a copy still reads or writes it; one that is lost afterwards."""
    engine = ContentEngine(pages=40, host_pages=10, timeout_s=0)
    thread, other = waiting(engine)
    if kind == "restore":
        engine.graph.offload(thread)
    engine.memory.how = engine.memory.later
    if kind == "offload":
        engine.graph.offload(thread)
    else:
        with pytest.raises(StillLoading):
            resumed(engine, thread, other)
    (transfer,) = engine.graph.transfers
    under = transfer.page_units
    engine.graph.drop(thread)
    engine.graph.trim()
    assert not engine.graph.evict()
    engine.graph.audit()
    pool, host = engine.graph.retention.pages, engine.graph.retention.swapping.host.pages
    got = {handle & 0xFFFFFFFF for handle in pool.allocate(pool.free)}
    assert got.isdisjoint(here for here, _ in under)
    got = {handle & 0xFFFFFFFF for handle in host.allocate(host.free)}
    assert got.isdisjoint(there for _, there in under)
    assert (pool.free, host.free) == (0, 0)
    transfer.complete(ok=ok)
    assert not transfer.complete()
    engine.graph.trim()
    assert (pool.free, host.free) == (3, 3)


def test_a_tier_without_room_is_legal_and_never_used() -> None:
    """Catches: a division or an allocation of nothing; a page reported as saved where nothing can be saved."""
    engine = ContentEngine(pages=40, host_pages=0)
    thread, other = waiting(engine)
    assert engine.graph.offload(thread) == 0 and engine.graph.stats().counters.offloads_started == 0
    assert resumed(engine, thread, other) == expected()
    with pytest.raises(ValueError, match="pages, states and timeout_s are 0 or more, got -1, 0 and 30"):
        HostTier(pages=-1, copier=engine.memory)


def test_a_tier_with_less_room_takes_the_beginning() -> None:
    """Catches: a preempted thread whose end is saved and whose beginning is not, so that all is computed again."""
    engine = ContentEngine(pages=40, host_pages=2)
    thread = engine.thread([7] * (4 * PAGE + 1))
    engine.compute(thread)
    assert engine.graph.preempt(thread) == 5
    assert (thread.cursor.segment.computed, sorted(thread.cursor.segment.host_pages)) == (2 * PAGE, [0, 1])
    engine.graph.audit()
    engine.compute(thread)
    assert engine.graph.stats().counters.tokens_recomputed == 2 * PAGE + 1
    engine.graph.audit()


def test_the_shared_prefix_of_running_threads_stays() -> None:
    """Catches: offloading whatever waits, which is first of all the root that all its children see."""
    engine = ContentEngine(pages=12, host_pages=20)
    root = engine.thread([5] * 16)
    children = engine.graph.fork(root, 2)
    for child in children:
        engine.graph.append(child, [6])
    engine.compute(root, *children)
    engine.graph.append(root, [9] * 8)
    engine.compute(root)
    engine.graph.wait_threads(root, children)
    assert engine.graph.offload(root) == 2  # What only the root sees.
    engine.graph.append(children[0], [6] * 24)
    engine.compute(*children)
    assert NO_PAGE not in root.cursor.segment.pages[:4]
    engine.graph.audit()


def test_a_refusal_says_what_is_being_copied() -> None:
    """Catches: a ladder that preempts everybody since nothing seems to become free."""
    engine = ContentEngine(pages=12, host_pages=40, timeout_s=0)
    threads = [engine.thread([number] * 8) for number in range(5)]
    engine.compute(*threads)
    engine.memory.how = engine.memory.later
    late = engine.thread([9] * 12)
    with pytest.raises(CapacityExceeded, match="need 3 pages of 4 tokens, 2 of 12 are free, 2 are being copied; larg"):
        engine.compute(late)
    assert [thread.preempted for thread in threads] == [False] * 4 + [True]
    engine.graph.audit()
    engine.memory.pending[0].complete()
    engine.compute(late)
    engine.graph.audit()
