"""Cancelling a subtree at any point: waiting, leaving, coming back, in the middle of a step."""

from __future__ import annotations

import pytest
from core.content import ContentEngine

from octopus.core.errors import NotRunning, StillLoading
from octopus.core.host import Transfer
from octopus.core.thread import Status, Thread


def family(engine: ContentEngine) -> tuple[Thread, list[Thread], Thread]:
    """A root, three computed children of which one has committed, and a stranger that has read one of them."""
    graph = engine.graph
    root = engine.thread([1] * 5)
    children = graph.fork(root, 3)
    for number, child in enumerate(children):
        graph.append(child, [number] * 6)
    stranger = engine.thread([9])
    engine.compute(*children, stranger)
    graph.commit(children[0])
    graph.read_thread(stranger, children[1])
    graph.append(stranger, [8])
    engine.compute(stranger)
    return root, children, stranger


def end(engine: ContentEngine, *threads: Thread) -> None:
    """Cancels, twice; then everybody else goes, and nothing is left."""
    graph = engine.graph
    root, children, stranger = threads[0], threads[1:-1], threads[-1]
    seen = [engine.read(part, 0) for part in (children[1].cursor.segment,)] if children else []
    for _ in range(2):
        graph.cancel(root)
        graph.audit()
    assert children[0].status is Status.COMMITTED and root.status is Status.CANCELLED
    assert [child.status for child in children[1:]] == [Status.CANCELLED] * (len(children) - 1)
    assert [engine.read(part, 0) for part in (children[1].cursor.segment,)] == seen  # The reader keeps it.
    graph.append(stranger, [7])
    engine.compute(stranger)
    for thread in threads:
        graph.drop(thread)
    for transfer in graph.transfers:
        transfer.complete()
    graph.trim()
    stats = graph.stats()
    assert (stats.pages.used, stats.states.used, stats.host_pages.used, stats.host_states.used) == (0, 0, 0, 0)
    graph.audit()


@pytest.mark.parametrize("states", [None, 40], ids=["attention", "hybrid"])
def test_while_it_waits(states: int | None) -> None:
    """Catches: a waiter that is never woken, a cancelled one that is woken later, a commit that is taken back."""
    engine = ContentEngine(pages=60, states=states)
    root, children, stranger = family(engine)
    wait = engine.graph.wait_threads(root, children)
    other = engine.graph.wait_threads(stranger, [root])
    engine.graph.cancel(root)
    assert wait.done and other.done and stranger.status is Status.RUNNING
    end(engine, root, *children, stranger)


@pytest.mark.parametrize("ok", [True, False])
def test_while_its_memory_leaves(ok: bool) -> None:
    """Catches: a late completion that writes into the page table of a thread that is gone."""
    engine = ContentEngine(pages=60, host_pages=20, timeout_s=0)
    root, children, stranger = family(engine)
    engine.graph.wait_threads(root, children)
    engine.memory.how = engine.memory.later
    assert engine.graph.preempt(children[2]) == 2
    engine.graph.cancel(root)
    (transfer,) = engine.memory.pending
    assert transfer.complete(ok=ok)
    engine.graph.audit()
    engine.memory.how = Transfer.complete
    end(engine, root, *children, stranger)


@pytest.mark.parametrize("ok", [True, False])
def test_while_its_memory_comes_back(ok: bool) -> None:
    """Catches: device pages of a restore that nobody waits for any more."""
    engine = ContentEngine(pages=60, host_pages=20, timeout_s=0)
    root, children, stranger = family(engine)
    assert engine.graph.preempt(children[2]) == 2
    engine.memory.how = engine.memory.later
    engine.graph.append(children[2], [3])
    with pytest.raises(StillLoading):
        engine.compute(children[2])
    engine.graph.cancel(root)
    engine.graph.audit()
    assert engine.memory.pending[0].complete(ok=ok)
    end(engine, root, *children, stranger)


@pytest.mark.parametrize("states", [None, 40], ids=["attention", "hybrid"])
@pytest.mark.parametrize("drop", [False, True])
@pytest.mark.parametrize("at", range(3))
def test_in_the_middle_of_a_step(states: int | None, drop: bool, at: int) -> None:
    """Catches: pages given back that the pass still writes, and pages of a cancelled thread that never come back."""
    engine = ContentEngine(pages=60, states=states, chunk_tokens=4)
    root, children, stranger = family(engine)
    for child in children[1:]:
        engine.graph.append(child, [5] * 9)
    written = 0
    with engine.graph.begin_step(children[1:], chunk_tokens=4) as step:
        for wave in step.waves:
            for stretch in wave:
                if written == at:
                    engine.graph.cancel(root)
                    if drop:
                        engine.graph.drop(children[2])
                    engine.graph.trim()
                    engine.graph.audit()
                engine.write(stretch, step)
                written += 1
        assert written > 3
    engine.graph.audit()
    with pytest.raises(NotRunning):
        engine.compute(children[1])
    if not drop:
        end(engine, root, *children, stranger)
