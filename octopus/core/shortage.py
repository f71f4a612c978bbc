"""What to say when a pool cannot give what was asked for."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

from octopus.core.cursor import Cursor
from octopus.core.pool import NO_PAGE, PagePool, Pool
from octopus.core.segment import Segment
from octopus.core.thread import Thread

if TYPE_CHECKING:
    from octopus.core.retention import Retention

NAMED = 3  # How many of the largest holders a message names.


def shortage(retention: Retention, *, pages: int, states: int) -> str:
    """The message: for each pool that is short what is needed and free, who holds most, and what to do."""
    lines, holders = [], _holders(retention.threads.values())
    for pool, need, option in ((retention.pages, pages, "pages"), (retention.states, states, "state_slots")):
        if pool is None or pool.free >= need:
            continue
        unit = f"pages of {pool.page_size} tokens" if isinstance(pool, PagePool) else pool.noun
        lines.append(f"need {need} {unit}, {pool.free} of {pool.capacity} are free{_soon(retention, pool)}")
        if need > pool.capacity:
            lines.append(f"dropping threads cannot help: build the engine with more {option}")
            continue
        held = [(counts[option], thread) for thread, counts in holders.items() if counts[option]]
        largest = sorted(held, key=lambda holder: (-holder[0], holder[1].id))[:NAMED]
        if largest:
            named = ", ".join(f"thread {thread.id} ({count})" for count, thread in largest)
            lines.append(f"largest holders: {named}; drop threads, or build the engine with more {option}")
    return "; ".join(lines)


def _soon(retention: Retention, pool: Pool) -> str:
    """What will be free without anybody's doing."""
    transfers = retention.swapping.moving.values()
    moving = sum(len(t.pages if pool is retention.pages else t.states) for t in transfers)
    fenced = f", {pool.fenced} more at the end of the open step" if pool.fenced else ""
    return fenced + (f", {moving} are being copied" if moving else "")


def _holders(threads: Iterable[Thread]) -> dict[Thread, dict[str, int]]:
    """What each thread holds. What several can see is counted once, for the oldest of them."""
    holders: dict[Thread, dict[str, int]] = {}
    counted: set[Segment] = set()
    for thread in threads:
        held = holders[thread] = {"pages": 0, "state_slots": 0}
        stack = [place.segment for place in _places(thread)]
        while stack:
            segment = stack.pop()
            if segment in counted:
                continue
            counted.add(segment)
            held["pages"] += sum(handle != NO_PAGE for handle in segment.pages)
            held["state_slots"] += len(segment.states)
            stack += [] if segment.parent is None else [segment.parent.segment]
            stack += [mount.source.segment for mount in segment.mounts]
    return holders


def _places(thread: Thread) -> list[Cursor]:
    """Where the thread and its snapshots stand."""
    places = [snapshot.cursor for snapshot in thread.snapshots.values()]
    return places if thread.status.terminal else [thread.cursor, *places]
