"""Events that suspend, wake and end threads."""

from __future__ import annotations

from collections.abc import Iterator

from octopus.verify.audits.traces.world import TERMINAL, Event, Fault, TracedThread, TracedWait, World

ACTOR = {
    "fork": "parent", "open": "thread", "append": "thread", "read": "reader", "wait": "thread", "mark": "thread",
    "turn": "thread",
    "rewind": "thread", "commit": "thread", "cancel": "thread", "fail": "thread", "drop": "thread",
}  # fmt: skip
"""The field that names who acts."""

ENDS = {"commit": "committed", "cancel": "cancelled", "fail": "failed"}


def actor_faults(world: World, event: Event) -> Iterator[Fault]:
    """Whether who acts may still act."""
    kind = event["kind"]
    field = ACTOR.get(kind)
    if field is None:
        return
    id = event[field]
    thread = world.thread(id)
    if thread.dropped:
        yield Fault("OCT611", f"{kind} by thread {id}, which was dropped", (kind, "dropped"))
    elif thread.status in TERMINAL and kind in ENDS:
        message = f"thread {id} was {thread.status} and becomes {ENDS[kind]}"
        yield Fault("OCT707", message, (thread.status, ENDS[kind]))
    elif thread.status in TERMINAL and kind != "drop" and not (kind == "fork" and thread.status == "committed"):
        yield Fault("OCT611", f"{kind} by thread {id}, which was {thread.status}", (kind, thread.status))
    elif thread.wait is not None and kind not in ("cancel", "fail", "drop"):
        yield Fault("OCT614", f"{kind} by thread {id} while it waits", (kind, "waiting"))


def on_wait(world: World, event: Event) -> Iterator[Fault]:
    """A thread begins to wait."""
    awaited = tuple(event["awaited"])
    if event["thread"] in awaited:
        yield Fault("OCT614", f"thread {event['thread']} waits for itself", ("itself",))
    versions = {id: world.thread(id).version for id in awaited}
    world.thread(event["thread"]).wait = TracedWait(
        awaited=awaited, mode=event["mode"], until=event["until"], versions=versions
    )


def on_resume(world: World, event: Event) -> Iterator[Fault]:
    """It goes on: because of what it waited for, or because of the time."""
    thread, id = world.thread(event["thread"]), event["thread"]
    if thread.wait is None:
        yield Fault("OCT614", f"thread {id} resumes and was not waiting", ("not waiting",))
        return
    met = [_met(world.thread(other), thread.wait, other) for other in dict.fromkeys(thread.wait.awaited)]
    if not event["timed_out"] and not (all(met) if thread.wait.mode == "all" else any(met)):
        message = f"thread {id} resumes, {sum(met)} of {len(met)} had done what it waits for ({thread.wait.mode})"
        yield Fault("OCT614", message, ("not met",))
    for other, status in event["statuses"]:
        known = world.thread(other).status
        if known in TERMINAL and status != known:
            message = f"thread {id} is told that thread {other} is {status}; it was {known}"
            yield Fault("OCT707", message, (known, status))
    thread.wait = None


def on_cancel(world: World, event: Event) -> Iterator[Fault]:
    """A thread ends."""
    yield from _ended(world.thread(event["thread"]), "cancelled")


def on_fail(world: World, event: Event) -> Iterator[Fault]:
    """The engine ends a thread."""
    yield from _ended(world.thread(event["thread"]), "failed")


def on_drop(world: World, event: Event) -> Iterator[Fault]:
    """A handle is given back; a thread that runs is cancelled by it."""
    thread = world.thread(event["thread"])
    if thread.status not in TERMINAL:
        yield from _ended(thread, "cancelled")
    thread.dropped = True


def _ended(thread: TracedThread, status: str) -> Iterator[Fault]:
    thread.status, thread.wait = status, None
    yield from ()


def _met(other: TracedThread, wait: TracedWait, id: int) -> bool:
    return other.status in TERMINAL or (wait.until == "snapshot" and other.version > wait.versions[id])
