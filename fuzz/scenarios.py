"""Scenarios of three threads on one store, small enough that all their interleavings can be run.

Each makes a fresh stage, three bodies, and the check that runs after them. A body's calls may be refused, since the
others race with it; what may never happen is a broken audit, a page that is lost, or a view of somebody else's KV.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from fuzz.operations import PAGE
from fuzz.scheduler import Scheduler
from fuzz.stage import Stage
from octopus.core.errors import invariant

Bodies = tuple[Sequence[Callable[[], object]], Callable[[], object]]


def fork_drop_append(scheduler: Scheduler) -> Bodies:
    """A parent is forked, written to and dropped at once."""
    stage = Stage(scheduler)
    graph, parent = stage.graph, stage.line(PAGE + 1)
    bodies = [
        stage.attempt(lambda: graph.fork(parent, 2)),
        stage.attempt(lambda: graph.append(parent, [2])),
        stage.attempt(lambda: graph.drop(parent)),
    ]
    return bodies, stage.come_to_rest


def read_cancel_drop(scheduler: Scheduler) -> Bodies:
    """A source is read while it is cancelled and dropped."""
    stage = Stage(scheduler)
    graph, root = stage.graph, stage.line(PAGE)
    reader, source = graph.fork(root, 2)
    graph.append(source, [3] * PAGE)
    stage.engine.compute([source])
    bodies = [
        stage.attempt(lambda: graph.read_thread(reader, source)),
        stage.attempt(lambda: graph.cancel(source)),
        stage.attempt(lambda: graph.drop(source)),
    ]
    return bodies, stage.come_to_rest


def commit_cancel_wait(scheduler: Scheduler) -> Bodies:
    """A thread commits and is cancelled while another begins to wait for it: the waiter goes on in any case."""
    stage = Stage(scheduler)
    graph, root = stage.graph, stage.line(2)
    (child,) = graph.fork(root)

    def check() -> None:
        invariant(child.status.terminal, "one of the two has ended the child")
        invariant(root.status.value == "running", "who waited for it goes on")
        stage.come_to_rest()

    bodies = [
        stage.attempt(lambda: graph.commit(child)),
        stage.attempt(lambda: graph.cancel(child)),
        stage.attempt(lambda: graph.wait_threads(root, [child])),
    ]
    return bodies, check


def rewind_read_fork(scheduler: Scheduler) -> Bodies:
    """A thread rewinds while it is read and forked."""
    stage = Stage(scheduler)
    graph, root = stage.graph, stage.line(2)
    writer, reader = graph.fork(root, 2)
    graph.append(writer, [4] * (PAGE + 2))
    stage.engine.compute([writer])
    bodies = [
        stage.attempt(lambda: graph.rewind(writer, 1)),
        stage.attempt(lambda: graph.read_thread(reader, writer)),
        stage.attempt(lambda: graph.fork(writer)),
    ]
    return bodies, stage.come_to_rest


def mutual_waits(scheduler: Scheduler) -> Bodies:
    """Three threads begin to wait for each other in a ring: one of them must be refused."""
    stage = Stage(scheduler)
    graph, root = stage.graph, stage.line(1)
    a, b, c = graph.fork(root, 3)

    def check() -> None:
        running = [thread for thread in (a, b, c) if thread.status.value == "running"]
        invariant(len(running) == 1, f"{len(running)} of three threads in a ring go on")
        graph.cancel(root)
        stage.come_to_rest()

    bodies = [
        stage.attempt(lambda: graph.wait_threads(a, [b])),
        stage.attempt(lambda: graph.wait_threads(b, [c])),
        stage.attempt(lambda: graph.wait_threads(c, [a])),
    ]
    return bodies, check


def step_cancel_append(scheduler: Scheduler) -> Bodies:
    """A thread is written to and cancelled while a step computes it."""
    stage = Stage(scheduler)
    graph, thread = stage.graph, stage.line(2, computed=False)
    bodies = [
        stage.attempt(lambda: stage.engine.compute([thread])),
        stage.attempt(lambda: graph.append(thread, [5])),
        stage.attempt(lambda: graph.cancel(thread)),
    ]
    return bodies, stage.come_to_rest


def step_drop_evict(scheduler: Scheduler) -> Bodies:
    """A thread is dropped, and cache evicted, while a step computes it."""
    stage = Stage(scheduler)
    graph, thread = stage.graph, stage.line(2, computed=False)
    bodies = [
        stage.attempt(lambda: stage.engine.compute([thread])),
        stage.attempt(lambda: graph.drop(thread)),
        stage.attempt(graph.trim),
    ]
    return bodies, stage.come_to_rest


def two_steps_and_a_drop(scheduler: Scheduler) -> Bodies:
    """Two steps for children of one parent, which is dropped."""
    stage = Stage(scheduler)
    graph, parent = stage.graph, stage.line(2, computed=False)
    one, other = graph.fork(parent, 2)
    bodies = [
        stage.attempt(lambda: stage.engine.compute([one])),
        stage.attempt(lambda: stage.engine.compute([other])),
        stage.attempt(lambda: graph.drop(parent)),
    ]
    return bodies, stage.come_to_rest


def offload_complete_restore(scheduler: Scheduler) -> Bodies:
    """What goes to the host is needed again, at any moment of the copy, while a third commits next to it."""
    stage = Stage(scheduler, host_pages=8, prompt=False)
    graph, root = stage.graph, stage.line(2)
    (child,) = graph.fork(root)
    graph.append(child, [6] * PAGE)
    stage.engine.compute([child])
    graph.commit(child)
    bodies = [
        stage.attempt(lambda: graph.offload(child)),
        stage.attempt(stage.copier.deliver_all),
        stage.attempt(
            lambda: graph.read_thread(root, child),
            lambda: graph.append(root, [7]),
            lambda: stage.engine.compute([root]),
        ),
    ]
    return bodies, stage.come_to_rest


def offload_complete_drop(scheduler: Scheduler) -> Bodies:
    """A thread is dropped while its pages are under way, and the copy arrives."""
    stage = Stage(scheduler, host_pages=8, prompt=False)
    graph, thread = stage.graph, stage.line(PAGE + 1)
    graph.commit(thread)
    bodies = [
        stage.attempt(lambda: graph.offload(thread)),
        stage.attempt(stage.copier.deliver_all),
        stage.attempt(lambda: graph.drop(thread), graph.trim),
    ]
    return bodies, stage.come_to_rest


def preempt_step_cancel(scheduler: Scheduler) -> Bodies:
    """A thread is preempted while another's step runs, and cancelled."""
    stage = Stage(scheduler, host_pages=8)
    graph, root = stage.graph, stage.line(2)
    victim, other = graph.fork(root, 2)
    graph.append(victim, [8] * PAGE)
    stage.engine.compute([victim])
    graph.append(other, [9])
    bodies = [
        stage.attempt(lambda: graph.preempt(victim)),
        stage.attempt(lambda: stage.engine.compute([victim, other])),
        stage.attempt(lambda: graph.cancel(victim)),
    ]
    return bodies, stage.come_to_rest


def match_evict_drop(scheduler: Scheduler) -> Bodies:
    """A cached prefix is found again while it is evicted."""
    stage = Stage(scheduler)
    graph, thread = stage.graph, stage.line(PAGE + 2)
    bodies = [
        stage.attempt(lambda: graph.thread_from([1] * (PAGE + 1))),
        stage.attempt(lambda: graph.evict()),
        stage.attempt(lambda: graph.drop(thread)),
    ]
    return bodies, stage.come_to_rest


def pressure(scheduler: Scheduler) -> Bodies:
    """Two threads need the last pages while a third gives some back."""
    stage = Stage(scheduler, pages=3)
    graph, root = stage.graph, stage.line(2)
    one, other = graph.fork(root, 2)
    graph.append(one, [1] * PAGE)
    graph.append(other, [2] * (PAGE + 1))
    bodies = [
        stage.attempt(lambda: stage.engine.compute([one])),
        stage.attempt(lambda: stage.engine.compute([other])),
        stage.attempt(lambda: graph.drop(one)),
    ]
    return bodies, stage.come_to_rest


def weights_fork_step(scheduler: Scheduler) -> Bodies:
    """The weights change under a fork and a step."""
    stage = Stage(scheduler)
    graph, thread = stage.graph, stage.line(2, computed=False)

    def check() -> None:
        for old in graph.threads:
            graph.drop(old)
        stage.come_to_rest()

    bodies = [
        stage.attempt(lambda: stage.engine.compute([thread])),
        stage.attempt(lambda: graph.fork(thread)),
        stage.attempt(graph.advance_weights),
    ]
    return bodies, check


def states_fork_step_room(scheduler: Scheduler) -> Bodies:
    """A step advances a state from which another thread forks, while a third wants state slots."""
    stage = Stage(scheduler, states=4)
    graph, thread = stage.graph, stage.line(2)
    graph.append(thread, [3])
    bodies = [
        stage.attempt(lambda: stage.engine.compute([thread])),
        stage.attempt(lambda: graph.fork(thread), lambda: graph.append(thread, [4])),
        stage.attempt(lambda: graph.make_room(states=3)),
    ]
    return bodies, stage.come_to_rest


def restore_complete_room(scheduler: Scheduler) -> Bodies:
    """A step waits for its pages while a third wants the idle state that the step starts from."""
    stage = Stage(scheduler, states=3, host_pages=8, prompt=False, patient=True)
    graph, writer = stage.graph, stage.line(PAGE)
    other = graph.thread()
    (fork,) = graph.fork(writer)
    graph.append(writer, [5] * PAGE)
    stage.engine.compute([writer])
    graph.drop(fork)
    graph.wait_threads(writer, [other])
    graph.offload(writer)
    stage.copier.deliver_all()
    graph.cancel(other)
    graph.rewind(writer, PAGE + 1)
    bodies = [
        stage.attempt(lambda: stage.engine.compute([writer])),
        stage.attempt(lambda: graph.make_room(states=3)),
        stage.attempt(stage.copier.deliver_all, stage.copier.deliver_all),
    ]
    return bodies, stage.come_to_rest


SCENARIOS: tuple[Callable[[Scheduler], Bodies], ...] = (
    fork_drop_append,
    read_cancel_drop,
    commit_cancel_wait,
    rewind_read_fork,
    mutual_waits,
    step_cancel_append,
    step_drop_evict,
    two_steps_and_a_drop,
    offload_complete_restore,
    offload_complete_drop,
    preempt_step_cancel,
    match_evict_drop,
    pressure,
    weights_fork_step,
    states_fork_step_room,
    restore_complete_room,
)
