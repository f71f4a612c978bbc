"""The audit of a graph: recounts what the primitives keep count of."""

from __future__ import annotations

from octopus.core.cursor import Cursor
from octopus.core.errors import invariant
from octopus.core.retention import Retention
from octopus.core.segment import Segment
from octopus.core.thread import Status


def audit(retention: Retention) -> None:
    """Recounts references, mounts, cache, waits, pages and state slots.

    Costs a walk over all threads and segments. Raises InvariantViolation naming the first rule that is broken.
    """
    _audit_references(retention)
    tips = {thread.cursor.segment for thread in retention.threads.values() if thread.at_tip}
    for segment in retention.segments.values():
        invariant(segment.tip == (segment in tips), f"{segment} is wrong about its writer")
        _audit_segment(segment, retention)
    _audit_waits(retention)
    retention.check_pools()


def _audit_references(retention: Retention) -> None:
    segments = retention.segments.values()
    standing: dict[int, list[int]] = {segment.index: [] for segment in segments}
    starts: dict[int, list[int]] = {segment.index: [] for segment in segments}
    ends: dict[int, list[int]] = {segment.index: [] for segment in segments}
    for cursor in _standing(retention):
        index = cursor.segment.index
        invariant(index in standing, f"somebody stands on the evicted segment {index}")
        standing[index].append(cursor.length)
    for mount in (mount for segment in segments for mount in segment.mounts):
        starts[mount.source.segment.index].append(-mount.first_offset)
        ends[mount.source.segment.index].append(mount.source.length)
    for segment in segments:
        for what, kept, counted in (
            ("references", segment.references, standing),
            ("starts of mounts", segment.mount_starts, starts),
            ("ends of mounts", segment.mount_ends, ends),
        ):
            held, found = sorted(kept), sorted(counted[segment.index])
            invariant(held == found, f"{segment} counts {what} {held}, found {found}")
            largest = max(found, default=-1)
            invariant(kept.maximum == largest, f"{segment} takes {kept.maximum} for the largest of {found}")


def _standing(retention: Retention) -> list[Cursor]:
    """The cursor of everybody who must be in a multiset of references."""
    threads = retention.threads.values()
    cursors = [thread.cursor for thread in threads if not thread.status.terminal and not thread.at_tip]
    cursors += [snapshot.cursor for thread in threads for snapshot in thread.snapshots.values()]
    for segment in retention.segments.values():
        cursors += [] if segment.parent is None else [segment.parent]
        cursors += [mount.source for mount in segment.mounts]
    return cursors


def _audit_segment(segment: Segment, retention: Retention) -> None:
    invariant(segment.held != (segment in retention.cached), f"{segment} must be held or cache, not both")
    invariant(segment.computed <= len(segment.tokens), f"{segment} computed more than it holds")
    invariant(segment.visible_end <= len(segment.tokens), f"{segment} is seen beyond its end")
    if retention.pages is not None:
        needed = retention.pages.pages_for(segment.computed)
        invariant(len(segment.pages) >= needed, f"{segment} has {len(segment.pages)} pages, computed needs {needed}")
    before = [] if segment.parent is None else [segment.parent.segment]
    before += [mount.source.segment for mount in segment.mounts]
    for other in before:
        same = other.weights_version == segment.weights_version
        invariant(same, f"{segment} of weights {segment.weights_version} sees {other} of {other.weights_version}")


def _audit_waits(retention: Retention) -> None:
    for thread in retention.threads.values():
        waits = thread.wait is not None and not thread.wait.done
        invariant(waits == (thread.status is Status.WAITING), f"{thread} is wrong about whether it waits")
        for wait in thread.waiters:
            invariant(wait.waiter.wait is wait, f"{thread} would wake {wait.waiter}, which waits for it no more")
