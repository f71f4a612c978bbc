"""Fingerprints of computed memory: made when it is written, compared when it comes back and, at a rate, when read."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import NamedTuple, Protocol

from octopus.core.pool import NO_PAGE, unit_of
from octopus.core.reach import Reach
from octopus.core.segment import Segment
from octopus.core.stats import Counters


class SealRun(NamedTuple):
    """Slots `[start, stop)` of page `unit`: tokens of segment number `segment`, the first at offset `offset`."""

    unit: int
    start: int
    stop: int
    segment: int
    offset: int


class StateSeal(NamedTuple):
    """State slot `unit`: the state after `length` tokens of segment number `segment`."""

    unit: int
    segment: int
    length: int


Sealed = SealRun | StateSeal


class SealedMemory(Protocol):
    """Whoever holds the bytes and can take their fingerprints."""

    def seal(self, pages: Sequence[SealRun], states: Sequence[StateSeal]) -> None:
        """Remembers what these slots hold now, and for whom."""
        ...

    def broken(self, pages: Sequence[SealRun], states: Sequence[StateSeal]) -> list[Sealed]:
        """Those that do not hold any more what was sealed, or were sealed for somebody else."""
        ...


class Seals:
    """Which slots are compared, and when.

    Attributes:
        rate: Share of the pages in a step's views that are compared before it computes: 1 for all of them, 0 for none
            (what comes back from the host tier is always compared). Who is looked at rotates from step to step, so that
            at rate 1/n a page that is read n times has been looked at: page i of segment number s in steps s + i modulo
            n, counted from 1.
    """

    def __init__(self, memory: SealedMemory, *, rate: float = 1 / 64) -> None:
        """Raises ValueError unless `0 <= rate <= 1`."""
        if not 0 <= rate <= 1:
            raise ValueError(f"rate is a share from 0 to 1, got {rate}")
        self.rate = rate
        self._memory = memory
        self._period = round(1 / rate) if rate else 0
        self._phase = 0
        self._written: list[SealRun] = []
        self._page_size = 1
        self._counters = Counters()

    def attach(self, page_size: int, counters: Counters) -> None:
        """Tells the size of a page in tokens, and where to count."""
        self._page_size, self._counters = page_size, counters

    def written(self, segment: Segment, start: int, stop: int) -> None:
        """Tokens `[start, stop)` of the segment were computed; sealed with the next `flush`."""
        size = self._page_size
        for index in range(start // size, -(-stop // size)):
            first, last = max(start, index * size), min(stop, (index + 1) * size)
            unit = unit_of(segment.pages[index])
            run = SealRun(unit, first - index * size, last - index * size, segment.index, first)
            self._written.append(run)

    def seal_states(self, segment: Segment, states: Mapping[int, int]) -> None:
        """Seals states of `segment`, handles by length, that are about to leave. To seal all costs too much."""
        self._memory.seal([], [StateSeal(unit_of(handle), segment.index, n) for n, handle in states.items()])

    def flush(self) -> None:
        """Seals what was written since the last call."""
        if self._written:
            written, self._written = self._written, []
            self._memory.seal(written, [])

    def broken(self, segment: Segment, pages: Mapping[int, int], states: Mapping[int, int]) -> list[Sealed]:
        """Compares memory of `segment`: page handles by index, state handles by length."""
        runs = [run for i, handle in pages.items() if (run := self._run(segment, i, handle)) is not None]
        return self._compare(runs, [StateSeal(unit_of(handle), segment.index, n) for n, handle in states.items()])

    def broken_among(self, seen: Reach) -> list[Sealed]:
        """Compares the share of the pages that a step sees whose turn it is."""
        if not self._period:
            return []
        self._phase = (self._phase + 1) % self._period
        return self._compare(list(self._picked(seen)), [])

    def _picked(self, seen: Reach) -> Iterator[SealRun]:
        """A page's turn hangs on the page alone: with who else is seen, and grows, it could be missed for ever."""
        for segment in seen:
            pages = segment.pages
            for index in range((self._phase - segment.index) % self._period, len(pages), self._period):
                if pages[index] != NO_PAGE and (run := self._run(segment, index, pages[index])) is not None:
                    yield run

    def _run(self, segment: Segment, index: int, handle: int) -> SealRun | None:
        offset = index * self._page_size
        stop = min(self._page_size, segment.computed - offset)
        return SealRun(unit_of(handle), 0, stop, segment.index, offset) if stop > 0 else None

    def _compare(self, pages: list[SealRun], states: list[StateSeal]) -> list[Sealed]:
        if not pages and not states:
            return []
        broken = self._memory.broken(pages, states)
        self._counters.seals_checked += len(pages) + len(states)
        self._counters.seals_broken += len(broken)
        return broken
