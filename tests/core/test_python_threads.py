"""Any number of Python threads may call the store."""

from __future__ import annotations

import random
import sys
import threading
from functools import partial

import pytest
from core.content import ContentEngine

from octopus.core.errors import CapacityExceeded, OctopusError
from octopus.core.host import Transfer
from octopus.core.thread import Status, Thread

WORKERS = 6
CALLS = 150


@pytest.fixture(autouse=True)
def _switching_often():
    interval = sys.getswitchinterval()
    sys.setswitchinterval(1e-5)
    yield
    sys.setswitchinterval(interval)


def work(engine: ContentEngine, root: Thread, seed: int, failures: list[BaseException]) -> None:
    """Random calls on threads of its own, and reads of whatever there is; in the end all of its own are dropped."""
    graph, rng, own = engine.graph, random.Random(seed), []
    try:
        for _ in range(CALLS):
            live = [thread for thread in own if thread.status is Status.RUNNING]
            if not live:
                own += graph.fork(root)
                continue
            thread = rng.choice(live)
            try:
                kind = rng.choice(["append", "append", "compute", "fork", "read", "rewind", "cancel", "drop", "room"])
                if kind == "append":
                    graph.append(thread, [rng.randrange(9) for _ in range(rng.randint(1, 5))])
                elif kind == "compute":
                    engine.compute(thread)
                elif kind == "fork":
                    own += graph.fork(thread)
                elif kind == "read":
                    graph.read_thread(thread, rng.choice(graph.threads))
                elif kind == "rewind":
                    graph.rewind(thread, rng.randint(0, thread.own_tokens))
                elif kind == "cancel":
                    graph.cancel(thread)
                elif kind == "drop":
                    own.remove(thread)
                    graph.drop(thread)
                elif kind == "room":
                    rng.choice([graph.evict, graph.audit, partial(graph.preempt, thread), graph.stats])()
            except OctopusError:
                pass
        for thread in own:
            graph.drop(thread)
    except BaseException as failure:
        failures.append(failure)
        raise


@pytest.mark.parametrize(("states", "host"), [(None, False), (60, False), (None, True), (60, True)])
def test_mixed_calls_end_with_every_page_free(states: int | None, host: bool) -> None:
    """Catches: an operation that is not atomic, a step that another thread breaks into, a lock that is kept."""
    engine = ContentEngine(
        pages=60, states=states, host_pages=40 if host else None, host_states=10 if host else 0, rate=1 / 4
    )
    if host:
        engine.memory.how = lambda transfer: threading.Timer(0.001, transfer.complete).start()
    root = engine.thread([1] * 6)
    engine.compute(root)
    failures: list[BaseException] = []
    workers = [threading.Thread(target=work, args=[engine, root, seed, failures]) for seed in range(WORKERS)]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join(timeout=300)
    assert not failures and not any(worker.is_alive() for worker in workers)
    graph = engine.graph
    graph.drop(root)
    assert graph.wait_transfers(30)
    graph.trim()
    graph.audit()
    stats = graph.stats()
    assert (stats.pages.used, stats.states.used, stats.host_pages.used, stats.host_states.used) == (0, 0, 0, 0)
    assert stats.threads == stats.segments == 0


def test_steps_take_turns() -> None:
    """Catches: two steps that plan the same tokens; a second step that waits for ever."""
    engine = ContentEngine(pages=60)
    thread, other = engine.thread([1] * 6), engine.thread([2] * 6)
    order: list[str] = []

    def second() -> None:
        engine.compute(other)
        order.append("second")

    with engine.graph.begin_step([thread]) as step:
        waiting = threading.Thread(target=second)
        waiting.start()
        waiting.join(timeout=0.05)
        assert waiting.is_alive()
        for wave in step.waves:
            for stretch in wave:
                engine.write(stretch, step)
        order.append("first")
    waiting.join(timeout=60)
    assert order == ["first", "second"]


def test_who_is_taken_into_a_step_while_its_memory_leaves_keeps_it() -> None:
    """Catches: a preemption that, after it has waited, drops what a step computes from."""
    engine = ContentEngine(pages=20, host_pages=2, timeout_s=60)
    thread = engine.thread([1] * 18)
    engine.compute(thread)
    engine.graph.append(thread, [2])

    def meddle(transfer: Transfer) -> None:
        engine.compute(thread)
        transfer.complete()

    engine.memory.how = lambda transfer: threading.Thread(target=meddle, args=[transfer]).start()
    engine.graph.preempt(thread)
    assert not thread.preempted and thread.cursor.segment.computed == 19
    assert engine.graph.stats().counters.tokens_recomputed == 0
    engine.graph.audit()


def test_a_copy_that_comes_from_another_thread_ends_the_wait() -> None:
    """Catches: a ladder that holds the lock while it waits, so that nobody can complete the copy."""
    engine = ContentEngine(pages=6, host_pages=6, timeout_s=60)
    first, second = engine.thread([1] * 16), engine.thread([2] * 16)
    engine.compute(first)
    engine.memory.how = lambda transfer: threading.Timer(0.01, transfer.complete).start()
    engine.compute(second)
    assert engine.graph.stats().counters.preempted_swapped == 1
    engine.compute(first)
    engine.graph.audit()
    engine.memory.how = lambda transfer: None
    engine.graph.retention.swapping.host.timeout_s = 0.01
    with pytest.raises(CapacityExceeded, match="4 are being copied"):
        engine.compute(second)
    (transfer,) = engine.graph.transfers
    assert isinstance(transfer, Transfer) and transfer.complete()
    engine.graph.audit()
