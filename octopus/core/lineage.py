"""All that a segment rests on."""

from __future__ import annotations

from collections.abc import Iterable
from graphlib import TopologicalSorter

from octopus.core.segment import Segment


def lineage(ends: Iterable[Segment]) -> list[Segment]:
    """The segments that `ends` continue or mount, over any number of hops, and they themselves.

    What a segment continues and what it mounts stands before it, whichever was opened first: an empty segment may
    mount what is younger than it.
    """
    rests_on: dict[Segment, list[Segment]] = {}
    stack = list(ends)
    while stack:
        segment = stack.pop()
        if segment not in rests_on:
            mounted = [part.segment for mount in segment.mounts for part in mount.parts]
            above = [] if segment.parent is None else [segment.parent.segment]
            rests_on[segment] = [*above, *mounted]
            stack += rests_on[segment]
    return list(TopologicalSorter(rests_on).static_order())
