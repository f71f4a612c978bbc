"""The audit of a graph: recounts what the primitives keep count of, and derives again what they derived.

Segments refer to what came before them only, so one walk in the order of their creation does. What is checked: that
every unit of every pool is free or owned once; that references are those that somebody holds, and lead to segments that
are there; that what can be seen and is computed has its page; positions and places on paths; waits; the prefix index.
"""

from __future__ import annotations

from collections.abc import Iterator

from octopus.core.cursor import Cursor
from octopus.core.errors import invariant
from octopus.core.pool import NO_PAGE
from octopus.core.references import LengthCounts, LengthMultiset
from octopus.core.retention import Retention
from octopus.core.segment import Segment
from octopus.core.thread import Status

Counts = dict[Segment, dict[int, int]]
"""By segment and length, how often."""


def audit(retention: Retention) -> None:
    """Costs a walk over all threads, segments and pages. Raises InvariantViolation naming the first broken rule."""
    _audit_references(retention)
    tips = {thread.cursor.segment for thread in retention.threads.values() if thread.at_tip}
    visible: dict[Segment, int] = {}
    for segment in retention.segments.values():
        if segment.tip != (segment in tips):
            invariant(False, f"{segment} is wrong about its writer")
        _audit_segment(segment, retention)
        _audit_memory(segment, retention)
        _audit_place(segment, visible)
    _audit_waits(retention)
    _audit_turns(retention)
    retention.check_pools()
    retention.prefixes.check(set(retention.segments.values()))


# ---- references ----


def _audit_references(retention: Retention) -> None:
    segments = retention.segments
    standing: Counts = {}
    starts: Counts = {}
    ends: Counts = {}
    for segment, length in _standing(retention):
        if segments.get(segment.index) is not segment:
            invariant(False, f"somebody stands on the evicted segment {segment.index}")
        _count(standing, segment, length)
    for mount in (mount for segment in segments.values() for mount in segment.mounts):
        _count(starts, mount.source.segment, -mount.first_offset)
        _count(ends, mount.source.segment, mount.source.length)
    nothing: dict[int, int] = {}
    for segment in segments.values():
        _compare(segment, "references", segment.references, standing.get(segment, nothing))
        _compare(segment, "starts of mounts", segment.mount_starts, starts.get(segment, nothing))
        _compare(segment, "ends of mounts", segment.mount_ends, ends.get(segment, nothing))


def _count(counts: Counts, segment: Segment, length: int) -> None:
    lengths = counts.get(segment)
    if lengths is None:
        counts[segment] = {length: 1}
    else:
        lengths[length] = lengths.get(length, 0) + 1


def _compare(segment: Segment, what: str, kept: LengthCounts, found: dict[int, int]) -> None:
    if not kept and not found:
        return
    if not kept.agrees_with(found):
        listed = sorted(length for length, times in found.items() for _ in range(times))
        invariant(False, f"{segment} counts {what} {sorted(kept)}, found {listed}")
    if isinstance(kept, LengthMultiset) and kept.maximum != max(found):
        invariant(False, f"{segment} takes {kept.maximum} for the largest of {sorted(found)}")


def _standing(retention: Retention) -> Iterator[Cursor]:
    """The cursor of everybody who must be in a multiset of references."""
    for thread in retention.threads.values():
        if not thread.at_tip and not thread.status.terminal:
            yield thread.cursor
        for snapshot in thread.snapshots.values():
            yield snapshot.cursor
    if retention.step is not None:
        yield from retention.step.pins
    for segment in retention.segments.values():
        if segment.parent is not None:
            yield segment.parent
        for mount in segment.mounts:
            yield mount.source


# ---- segments ----


def _audit_segment(segment: Segment, retention: Retention) -> None:
    if segment.held == (segment in retention.cached):
        invariant(False, f"{segment} must be held or cache, not both")
    if segment.computed > len(segment.tokens):
        invariant(False, f"{segment} computed more than it holds")
    if segment.computed > segment.reached:
        invariant(False, f"{segment} has {segment.computed} tokens computed, but reached {segment.reached}")
    if segment.visible_end > len(segment.tokens):
        invariant(False, f"{segment} is seen beyond its end")
    before = [] if segment.parent is None else [segment.parent.segment]
    before += [mount.source.segment for mount in segment.mounts]
    for other in before:
        if other.weights_version != segment.weights_version:
            versions = f"of weights {segment.weights_version} sees {other} of {other.weights_version}"
            invariant(False, f"{segment} {versions}")


def _audit_memory(segment: Segment, retention: Retention) -> None:
    """Whether what is computed has its page, on the device or in the host tier."""
    pool = retention.pages
    if pool is None:
        return
    needed = pool.pages_for(segment.computed)
    pages, away = segment.pages, segment.host_pages
    if len(pages) < needed:
        invariant(False, f"{segment} has {len(pages)} pages, computed needs {needed}")
    if len(pages) > needed and retention.step is None:
        invariant(False, f"{segment} keeps {len(pages)} pages between steps, computed needs {needed}")
    for index in away:
        if index >= len(pages) or pages[index] != NO_PAGE:
            invariant(False, f"page {index} of {segment} is on the device and in the host tier")
    for length in segment.host_states:
        if length in segment.states:
            invariant(False, f"the state after {length} tokens of {segment} is on the device and in the host tier")
    if NO_PAGE in pages and segment.held:
        shown = -segment.mount_starts.maximum // pool.page_size if segment.seen_through_mounts_only else 0
        gone = next((i for i in range(shown, needed) if pages[i] == NO_PAGE and i not in away), None)
        if gone is not None:
            invariant(False, f"page {gone} of {segment} can be seen and was given back")


def _audit_place(segment: Segment, visible: dict[Segment, int]) -> None:
    """Places on the path, and positions. `visible` gets how many tokens the first sees, if all by `append`."""
    parent = segment.parent
    if parent is None:
        position = path_start = depth = 0
        seen: int | None = 0
    else:
        above = parent.segment
        position, path_start, depth = above.start_position + parent.length, parent.path_length, above.depth + 1
        seen = visible.get(above)
        seen = None if seen is None else seen + parent.length
    if segment.path_start != path_start or segment.depth != depth:
        invariant(False, f"{segment} stands at {segment.path_start}, depth {segment.depth}, not {path_start}, {depth}")
    for mount in segment.mounts:
        if mount.base != position:
            invariant(False, f"{mount} of {segment} begins at position {mount.base}, not at {position}")
        position = mount.resume_position
        seen = seen + mount.count if seen is not None and mount.placement == "append" else None
    if segment.start_position != position:
        invariant(False, f"{segment} begins at position {segment.start_position}, not at {position}")
    if seen is not None:
        visible[segment] = seen
        if seen != position:
            invariant(False, f"{segment} sees {seen} tokens before position {position}: some are missing or doubled")


# ---- threads ----


def _audit_waits(retention: Retention) -> None:
    for thread in retention.threads.values():
        waits = thread.wait is not None and not thread.wait.done
        if waits != (thread.status is Status.WAITING):
            invariant(False, f"{thread} is wrong about whether it waits")
        for wait in thread.waiters:
            if wait.waiter.wait is not wait:
                invariant(False, f"{thread} would wake {wait.waiter}, which waits for it no more")


def _audit_turns(retention: Retention) -> None:
    turns: Counts = {}
    for thread in retention.threads.values():
        for segment, length in thread.turns:
            _count(turns, segment, length)
    for segment in retention.segments.values():
        if segment.turns and segment.turns != turns.get(segment):
            invariant(False, f"{segment} keeps states for turns {segment.turns}, found {turns.get(segment)}")
    for segment in turns:
        if retention.segments.get(segment.index) is not segment or not segment.turns:
            invariant(False, f"a turn boundary is on {segment}, which keeps no state for it")

