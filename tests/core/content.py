"""An engine without a model, whose memory is a table of numbers that depend on all that a token sees.

The key of a slot is hashed from the token, its position, its writer and the keys of everything visible, read from the
slots where they lie; the next token is a hash of the last key. Any slot that is lost, overwritten, taken from another
or seen at a wrong place changes all tokens that follow.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from octopus.core.ancestry import locate
from octopus.core.cursor import Cursor
from octopus.core.graph import Graph
from octopus.core.host import HostTier, Transfer
from octopus.core.pool import NO_PAGE, PagePool, StatePool, unit_of
from octopus.core.reservation import NO_STATE
from octopus.core.schedule import Stretch
from octopus.core.seals import Sealed, SealRun, Seals, StateSeal
from octopus.core.step import Step
from octopus.core.thread import Thread
from octopus.core.visibility import view

PAGE = 4
VOCABULARY = 50


class Memory:
    """Device and host memory, with a fingerprint beside each slot; moves bytes for a host tier."""

    def __init__(self) -> None:
        self.slots: dict[tuple[int, int], int] = {}
        self.states: dict[int, int] = {}
        self.host_pages: dict[int, list[Any]] = {}
        self.host_states: dict[int, Any] = {}
        self.sums: dict[tuple[int, int], tuple[int, int, int]] = {}
        self.state_sums: dict[int, tuple[int, int, int]] = {}
        self.how: Callable[[Transfer], object] = Transfer.complete
        self.pending: list[Transfer] = []

    # ---- a copier ----

    def start(self, transfer: Transfer) -> None:
        self.copy(transfer)
        self.how(transfer)

    def later(self, transfer: Transfer) -> None:
        """Completes nothing; the test does."""
        self.pending.append(transfer)

    def copy(self, transfer: Transfer) -> None:
        for here, there in transfer.page_units:
            places = [(here, slot) for slot in range(PAGE)]
            if transfer.kind == "offload":
                self.host_pages[there] = [(self.slots.get(p), self.sums.get(p)) for p in places]
            else:
                for place, (value, seal) in zip(places, self.host_pages.pop(there), strict=True):
                    self.slots[place], self.sums[place] = value, seal
        for here, there in transfer.state_units:
            if transfer.kind == "offload":
                self.host_states[there] = (self.states.get(here), self.state_sums.get(here))
            else:
                self.states[here], self.state_sums[here] = self.host_states.pop(there)

    # ---- a sealed memory ----

    def seal(self, pages: Sequence[SealRun], states: Sequence[StateSeal]) -> None:
        for run in pages:
            for slot in range(run.start, run.stop):
                place = (run.unit, slot)
                self.sums[place] = (self.slots[place], run.segment, run.offset + slot - run.start)
        for state in states:
            self.state_sums[state.unit] = (self.states[state.unit], state.segment, state.length)

    def broken(self, pages: Sequence[SealRun], states: Sequence[StateSeal]) -> list[Sealed]:
        found: list[Sealed] = []
        for run in pages:
            for slot in range(run.start, run.stop):
                place = (run.unit, slot)
                owner = (run.segment, run.offset + slot - run.start)
                if self.sums.get(place) != (self.slots.get(place), *owner):
                    found.append(run)
                    break
        found += [
            state
            for state in states
            if self.state_sums.get(state.unit) != (self.states.get(state.unit), state.segment, state.length)
        ]
        return found


class ContentEngine:
    """Computes and samples on a `Memory`."""

    def __init__(
        self,
        *,
        pages: int,
        states: int | None = None,
        host_pages: int | None = None,
        host_states: int = 0,
        timeout_s: float = 5.0,
        rate: float | None = 1.0,
        chunk_tokens: int = 6,
        **settings: Any,
    ) -> None:
        self.memory = Memory()
        host = None
        if host_pages is not None:
            host = HostTier(pages=host_pages, states=host_states, copier=self.memory, timeout_s=timeout_s)
        self.graph = Graph(
            pages=PagePool(pages, page_size=PAGE),
            states=None if states is None else StatePool(states),
            host=host,
            seals=None if rate is None else Seals(self.memory, rate=rate),
            **settings,
        )
        self.chunk_tokens = chunk_tokens
        self.names: dict[int, Any] = {}  # What stands for a writer in keys; its number if it has no name.

    def thread(self, tokens: Sequence[int], **settings: Any) -> Thread:
        thread = self.graph.thread(**settings)
        self.graph.append(thread, tokens)
        return thread

    def compute(self, *threads: Thread) -> None:
        with self.graph.begin_step(threads, chunk_tokens=self.chunk_tokens) as step:
            for wave in step.waves:
                for stretch in wave:
                    self.write(stretch, step)

    def write(self, stretch: Stretch, step: Step) -> None:
        segment, start, stop, again = stretch
        move = step.state_move(stretch)
        state = 0 if move.read == NO_STATE else self.memory.states[move.read]
        for offset in range(start, stop):
            seen = [
                (part.segment.start_position + at + part.shift, self.read(part.segment, at))
                for part in view(Cursor(segment, offset))
                for at in range(part.start, part.stop)
            ]
            position = segment.start_position + offset
            writer = self.names.get(segment.writer, segment.writer)
            key = hash((segment.tokens[offset], position, writer, state, tuple(seen)))
            if again:
                assert self.read(segment, offset) == key, "computing again gave something else"
            else:
                self.memory.slots[self.place(segment, offset)] = key
            if move.write != NO_STATE:
                state = hash((state, key))
        if move.write != NO_STATE:
            self.memory.states[move.write] = state
        step.publish(stretch)

    def place(self, segment: Any, offset: int) -> tuple[int, int]:
        handle = segment.pages[offset // PAGE]
        assert handle != NO_PAGE, f"{segment} has no page for offset {offset}"
        self.graph.retention.pages.unit(handle)
        return unit_of(handle), offset % PAGE

    def read(self, segment: Any, offset: int) -> int:
        return self.memory.slots[self.place(segment, offset)]

    def sample(self, *threads: Thread) -> list[int]:
        """The next token of each; computes what they lack, in one step."""
        self.compute(*threads)
        keys = [self.read(*before(thread)) for thread in threads]
        return [key % VOCABULARY for key in keys]


def before(thread: Thread) -> tuple[Any, int]:
    """Segment and offset of the last token of the thread's path."""
    segment, length = locate(thread.cursor, thread.cursor.path_length)
    return segment, length - 1
