"""Who influences what: over any number of hops, whatever path and mounts carry, and what was waited for."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from graphlib import TopologicalSorter

from octopus.core.cursor import Cursor
from octopus.core.segment import Segment
from octopus.core.waits import WaitEdge


class Influence:
    """For each place of an episode the branches that influence it.

    A place is influenced by its segment's writer, by the place that the segment continues and by what it mounts; and,
    if `waits` are given, by whoever the writer has waited for before it: in text mode waiting is how words are handed
    over.
    """

    def __init__(
        self, branches: Collection[int], segments: Sequence[Segment], waits: Sequence[WaitEdge] = ()
    ) -> None:
        """`branches` are thread ids; the episode's segments are closed under parents and mounts."""
        self._branches = frozenset(branches)
        self._waits: dict[Segment, list[WaitEdge]] = {}
        for edge in waits:
            self._waits.setdefault(edge.waiter.segment, []).append(edge)
        reached = self._reached([Cursor(segment, len(segment.tokens)) for segment in segments])
        self._known: dict[Cursor, frozenset[int]] = {}
        for place in TopologicalSorter(reached).static_order():
            self._known[place] = self._own(place).union(*(self._known[other] for other in reached[place]))

    def on(self, segment: Segment) -> frozenset[int]:
        """The branches (thread ids) that influence the last token of a segment, or what an empty one shows.

        Without waits they influence each of its tokens: what a segment sees of others is the same for all of them.
        """
        return self._known[Cursor(segment, len(segment.tokens))]

    def _reached(self, ends: list[Cursor]) -> dict[Cursor, list[Cursor]]:
        """What each place is influenced by in one hop."""
        reached: dict[Cursor, list[Cursor]] = {}
        while ends:
            place = ends.pop()
            if place not in reached:
                reached[place] = self._one_hop(place)
                ends += reached[place]
        return reached

    def _one_hop(self, place: Cursor) -> list[Cursor]:
        segment, length = place
        mounted = [Cursor(part.segment, part.stop) for mount in segment.mounts for part in mount.parts]
        awaited = [edge.awaited for edge in self._waits.get(segment, ()) if edge.waiter.length < length]
        above = [] if segment.parent is None else [segment.parent]
        return [*above, *mounted, *awaited]

    def _own(self, place: Cursor) -> frozenset[int]:
        writer = place.segment.writer
        return frozenset([writer] if place.length and writer in self._branches else [])


def influences(
    branches: Sequence[int], segments: Sequence[Segment], waits: Sequence[WaitEdge] = ()
) -> tuple[frozenset[int], ...]:
    """For each branch the branches that see something of it, itself included, as indices into `branches`."""
    index = {thread: number for number, thread in enumerate(branches)}
    influence = Influence(branches, segments, waits)
    hidden_with = [{number} for number in range(len(branches))]
    for segment in segments:
        if segment.writer in index:
            for thread in influence.on(segment):
                hidden_with[index[thread]].add(index[segment.writer])
    return tuple(map(frozenset, hidden_with))


def families(places: Sequence[tuple[int, ...]]) -> tuple[frozenset[int], ...]:
    """For each place its own index, and those of its children's places, over any number of generations."""
    return tuple(
        frozenset(number for number, other in enumerate(places) if other[: len(place)] == place)
        for place in places
    )
