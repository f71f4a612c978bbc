"""A pretended device and host: what lies in each page and state slot, by the uid of the token that wrote it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from octopus.core.seals import SealRun, StateSeal

NOTHING = -1
"""Lies in a slot that was never written. It equals no token, so a read of it is seen."""
TORN = -2
"""Lies where a pass or a copy was broken off."""


class Seal(NamedTuple):
    """What was remembered of a slot: for whom it was written, and what it then held."""

    segment: int
    offset: int
    uid: int


class Memory:
    """Rows of slots, and a seal beside each slot. No opinion about who owns what.

    Attributes:
        pages: For each page, the uid that each of its slots was written with.
        states: For each state slot, the uid of the last token that advanced it.
    """

    def __init__(self, *, pages: int, page_size: int, states: int) -> None:
        self.page_size = page_size
        self.pages = [[NOTHING] * page_size for _ in range(pages)]
        self.states = [NOTHING] * states
        self._page_seals: list[list[Seal | None]] = [[None] * page_size for _ in range(pages)]
        self._state_seals: list[Seal | None] = [None] * states

    def read(self, page: int, start: int, stop: int) -> list[int]:
        """What lies in the slots `[start, stop)`."""
        return self.pages[page][start:stop]

    def take_page(self, unit: int, source: Memory, source_unit: int) -> None:
        """Copies a page with its seals from another memory."""
        self.pages[unit] = list(source.pages[source_unit])
        self._page_seals[unit] = list(source._page_seals[source_unit])

    def take_state(self, unit: int, source: Memory, source_unit: int) -> None:
        """Copies a state with its seal from another memory."""
        self.states[unit] = source.states[source_unit]
        self._state_seals[unit] = source._state_seals[source_unit]

    # ---- `SealedMemory` ----

    def seal(self, pages: Sequence[SealRun], states: Sequence[StateSeal]) -> None:
        """Remembers what these slots hold now, and for whom."""
        for run in pages:
            for index, slot in enumerate(range(run.start, run.stop)):
                uid = self.pages[run.unit][slot]
                self._page_seals[run.unit][slot] = Seal(run.segment, run.offset + index, uid)
        for state in states:
            self._state_seals[state.unit] = Seal(state.segment, state.length, self.states[state.unit])

    def broken(
        self, pages: Sequence[SealRun], states: Sequence[StateSeal]
    ) -> list[SealRun | StateSeal]:
        """Those that do not hold any more what was sealed there for them."""
        found: list[SealRun | StateSeal] = [run for run in pages if not self._intact(run)]
        for state in states:
            if self._state_seals[state.unit] != Seal(state.segment, state.length, self.states[state.unit]):
                found.append(state)
        return found

    def _intact(self, run: SealRun) -> bool:
        slots = range(run.start, run.stop)
        return all(
            self._page_seals[run.unit][slot] == Seal(run.segment, run.offset + index, self.pages[run.unit][slot])
            for index, slot in enumerate(slots)
        )
