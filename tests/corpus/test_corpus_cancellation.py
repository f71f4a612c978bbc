"""Cancellation: clean-up that is skipped, done twice, overtaken, or reaches too far."""

from __future__ import annotations

import asyncio
import gc
import threading
import weakref

import pytest
from small_store import SmallStore

from octopus.core.errors import NotRunning
from octopus.core.thread import Status


def test_a_cancelled_thread_stays_cancelled() -> None:
    """Catches: COMPLETED that overwrites CANCELLED at the last moment (PraisonAI 3544)."""
    store = SmallStore(8, 2)
    thread = store.graph.thread()
    store.graph.append(thread, [1, 2])
    store.engine.open([thread])
    store.graph.cancel(thread)
    store.engine.advance()
    store.engine.close()
    with pytest.raises(NotRunning):
        store.graph.commit(thread)
    store.graph.fail(thread, "too late")
    assert thread.status is Status.CANCELLED and thread.reason is None
    store.drop_all()


def test_a_committed_thread_stays_committed() -> None:
    """Catches: an abort of what has finished, with its last copy still to come (vllm 25067)."""
    store = SmallStore(8, 2, host=4, prompt=False)
    thread = store.commit(store.root(1, 2, 3))
    store.graph.offload(thread)
    store.graph.cancel(thread)
    store.copier.deliver_all()
    assert thread.status is Status.COMMITTED and len(thread.snapshots) == 1
    store.copier.prompt = True
    reader = store.graph.thread()
    store.graph.read_thread(reader, thread)
    assert store.sees(store.write(reader, 4)) == [1, 2, 3, 4]
    store.drop_all()


def test_cancel_reaches_who_is_forked_while_it_runs() -> None:
    """Catches: children registered while the cancellation walks its list (prime-rl PR 1901)."""
    store = SmallStore(64, 2)
    root = store.root(1)
    errors: list[Exception] = []

    def spawn() -> None:
        try:
            while True:
                store.graph.fork(root)
        except NotRunning as error:
            errors.append(error)

    spawners = [threading.Thread(target=spawn) for _ in range(3)]
    for spawner in spawners:
        spawner.start()
    while len(store.graph.threads) < 20:
        pass
    store.graph.cancel(root)
    for spawner in spawners:
        spawner.join(10.0)
    assert len(errors) == 3
    assert {thread.status for thread in store.graph.threads} == {Status.CANCELLED}
    store.drop_all()


def test_cancelling_who_waits_and_who_is_waited_for_at_once() -> None:
    """Catches: a join that takes its own cancellation for the child's (launchdarkly 451)."""
    store = SmallStore(8, 2)

    async def play() -> None:
        root = store.graph.thread()
        (child,) = store.graph.fork(root)
        task = asyncio.create_task(store.graph.wait_async(root, [child]))
        await asyncio.sleep(0)
        task.cancel()
        store.graph.cancel(child)
        with pytest.raises(asyncio.CancelledError):
            await task
        assert (root.status, child.status) == (Status.RUNNING, Status.CANCELLED)

    asyncio.run(play())
    store.drop_all()


def test_withdrawing_a_wait_twice_does_nothing() -> None:
    """Catches: clean-up that must not be called again (verifiers PR 795)."""
    store = SmallStore(8, 2)
    root = store.graph.thread()
    (child,) = store.graph.fork(root)
    wait = store.graph.wait_threads(root, [child])
    for _ in range(2):
        store.graph.withdraw(wait)
        assert root.status is Status.RUNNING and not child.waiters
    again = store.graph.wait_threads(root, [child])
    store.graph.withdraw(wait)
    assert root.status is Status.WAITING and not again.done
    store.drop_all()


def test_a_blocked_child_does_not_block_its_parents_end() -> None:
    """Catches: a cancellation that joins a wedged child (hermes-agent 116435)."""
    store = SmallStore(8, 2)
    root = store.graph.thread()
    (child,) = store.graph.fork(root)
    (other,) = store.graph.fork(root)
    wait = store.graph.wait_threads(child, [other])
    done: list[bool] = []
    blocked = threading.Thread(target=lambda: done.append(store.graph.block(wait, timeout_s=20.0)))
    blocked.start()
    store.graph.cancel(root)
    blocked.join(10.0)
    assert done == [True] and child.status is Status.CANCELLED
    store.drop_all()


def test_new_weights_cancel_nobody() -> None:
    """Catches: a version bump that aborts what is running (miles 2372)."""
    store = SmallStore(8, 2)
    thread = store.root(1)
    store.graph.advance_weights()
    assert thread.status is Status.RUNNING
    store.drop_all()


def test_a_step_that_fails_keeps_nothing_alive() -> None:
    """Catches: a failure kept in a frame, so that what a retry needs is never freed (torch 18853, 27600)."""
    store = SmallStore(8, 2)
    thread = store.graph.thread()
    store.graph.append(thread, [1, 2])

    class Tensor:
        pass

    def fail() -> weakref.ref[Tensor]:
        tensor = Tensor()
        kept = weakref.ref(tensor)
        try:
            with store.graph.begin_step([thread]):
                raise RuntimeError(tensor)
        except RuntimeError:
            pass
        return kept

    kept = fail()
    gc.collect()
    assert kept() is None
    assert store.pages.used == 0
    store.engine.compute([thread])
    assert store.sees(thread) == [1, 2]


def test_readers_keep_what_a_cancelled_source_showed_them() -> None:
    """Catches: a cancellation that revokes what others have mounted (LMCache 1130 on objects that are pinned)."""
    store = SmallStore(12, 2)
    root = store.root(1, 2)
    reader, source = store.child(root), store.child(root, 5, 6, 7)
    store.graph.read_thread(reader, source)
    store.write(reader, 8)
    store.graph.cancel(source)
    store.graph.drop(source)
    store.graph.trim()
    store.root(9, 9, 9, 9)
    assert store.sees(reader) == [1, 2, 5, 6, 7, 8]
    store.drop_all()
