"""What a trace has told so far: segments, threads, and what a place shows. Ids are those of the trace."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from octopus.verify.findings import Severity

TERMINAL = frozenset({"committed", "cancelled", "failed"})

Event = Mapping[str, Any]


class Fault(NamedTuple):
    """Something that an event does and must not. `about` goes into the fingerprint: names, no numbers of rows."""

    code: str
    message: str
    about: tuple[str, ...] = ()
    severity: Severity | None = None


class Unknown(Exception):
    """An event names a thread or segment that the trace has not introduced."""


class Place(NamedTuple):
    """A segment and a length in it."""

    segment: int
    length: int


class Share(NamedTuple):
    """Tokens `[start, stop)` of a segment."""

    segment: int
    start: int
    stop: int


class Part(NamedTuple):
    """Tokens `[start, stop)` of a segment, shown at their own positions plus `shift`."""

    segment: int
    start: int
    stop: int
    shift: int


@dataclass(kw_only=True, slots=True, eq=False)
class TracedSegment:
    """A segment as far as it is written.

    Attributes:
        published: Largest length at which somebody else was given the place.
        mounts: The parts that each read added, with the order number of the read.
        writes: `(offset, order)` of each append.
    """

    parent: Place | None
    start_position: int
    writer: int
    length: int = 0
    published: int = 0
    mounts: list[tuple[int, tuple[Part, ...]]] = field(default_factory=list)
    writes: list[tuple[int, int]] = field(default_factory=list)
    digests: dict[int, str] = field(default_factory=dict)


@dataclass(kw_only=True, slots=True, eq=False)
class TracedWait:
    """What a waiting thread waits for; `versions` are those at the call."""

    awaited: tuple[int, ...]
    mode: str
    until: str
    versions: dict[int, int]


@dataclass(kw_only=True, slots=True, eq=False)
class TracedThread:
    """A thread as far as it has come. `seen_versions`: by source, the last version that it read."""

    cursor: Place
    fork: Place
    parent: int | None
    status: str = "running"
    dropped: bool = False
    versions: dict[int, Place] = field(default_factory=dict)
    wait: TracedWait | None = None
    seen_versions: dict[int, int] = field(default_factory=dict)

    @property
    def version(self) -> int:
        """Number of the last version; 0 before the first."""
        return max(self.versions, default=0)

    def publish(self, version: int) -> None:
        """The place where it stands gets a version."""
        self.versions[version] = self.cursor


@dataclass(kw_only=True, slots=True, eq=False)
class World:
    """All segments and threads."""

    segments: dict[int, TracedSegment] = field(default_factory=dict)
    threads: dict[int, TracedThread] = field(default_factory=dict)

    def thread(self, id: int) -> TracedThread:
        """Raises Unknown."""
        if id not in self.threads:
            raise Unknown(f"thread {id} has not begun")
        return self.threads[id]

    def segment(self, id: int) -> TracedSegment:
        """Raises Unknown."""
        if id not in self.segments:
            raise Unknown(f"segment {id} has not been opened")
        return self.segments[id]

    def hand_out(self, place: Place) -> None:
        """Somebody else was given the place."""
        segment = self.segment(place.segment)
        segment.published = max(segment.published, place.length)

    def path(self, place: Place) -> list[Share]:
        """The tokens from the root to a place, in order."""
        shares: list[Share] = []
        at: Place | None = place
        while at is not None:
            if at.length:
                shares.append(Share(at.segment, 0, at.length))
            at = self.segment(at.segment).parent
        return shares[::-1]

    def shown(self, place: Place) -> Iterator[Share]:
        """All that a place shows: its path and what was mounted on the way."""
        yield from self.path(place)
        at: Place | None = place
        while at is not None:
            segment = self.segment(at.segment)
            for _, parts in segment.mounts:
                yield from (Share(part.segment, part.start, part.stop) for part in parts)
            at = segment.parent


def places(event: Event, *prefixes: str) -> Iterator[Place]:
    """The places that an event names in fields such as `parent_segment`, `parent_length`."""
    for prefix in prefixes:
        yield Place(event[f"{prefix}segment"], event[f"{prefix}length"])


def covers(shares: Sequence[Share], wanted: Share) -> bool:
    """Whether every token wanted is among the shares."""
    at = wanted.start
    for start, stop in sorted((s.start, s.stop) for s in shares if s.segment == wanted.segment):
        if start > at:
            break
        at = max(at, stop)
    return at >= wanted.stop
