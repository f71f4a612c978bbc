"""A pretended engine: it computes what the store schedules, and writes uids where a model would write KV."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Sequence

from fuzz.device import TORN, Memory
from octopus.core.ancestry import locate
from octopus.core.cursor import Cursor
from octopus.core.graph import Graph
from octopus.core.mount import Part
from octopus.core.pool import NO_PAGE
from octopus.core.reservation import NO_STATE
from octopus.core.schedule import Stretch
from octopus.core.segment import Segment
from octopus.core.step import Step
from octopus.core.thread import Thread
from octopus.core.visibility import view

CHUNK_TOKENS = 6


class Engine:
    """Opens steps and does their passes; and demands that all that it reads is what was written there.

    Attributes:
        uids: Tells the uids of the tokens `[start, stop)` of a segment.
        step: The step that is open; None between steps.
        tokens_computed: How many tokens' KV it has written.
    """

    def __init__(self, graph: Graph, device: Memory, uids: Callable[[Segment, int, int], list[int]]) -> None:
        self.graph = graph
        self.device = device
        self.uids = uids
        self.step: Step | None = None
        self.tokens_computed = 0
        self._todo: list[Stretch] = []

    def compute(self, threads: Sequence[Thread], *, hidden: Sequence[Thread] = ()) -> None:
        """Makes the threads ready, and passes the last tokens of those in `hidden`, whether or not they were computed.

        Raises what `begin_step` raises, and has then changed nothing.
        """
        passed: set[tuple[Segment, int]] = set()
        with self.graph.begin_step(threads, hidden=hidden, chunk_tokens=CHUNK_TOKENS) as step:
            cursors = [thread.cursor for thread in hidden if thread.cursor.path_length]
            places = [locate(cursor, cursor.path_length) for cursor in cursors]
            for wave in step.waves:
                for stretch in wave:
                    self._run(step, stretch)
                    passed.add((stretch.segment, stretch.stop))
        for place in places:
            assert place in passed, f"the hidden state at {place} was wanted, and its token did not pass"

    def open(self, threads: Sequence[Thread]) -> None:
        """Begins a step for the threads, without any pass yet."""
        assert self.step is None
        step = self.graph.begin_step(threads, chunk_tokens=CHUNK_TOKENS)
        step.__enter__()
        self.step = step
        self._todo = [stretch for wave in reversed(step.waves) for stretch in reversed(wave)]

    def advance(self) -> bool:
        """One pass of the open step; False if there is none left."""
        assert self.step is not None
        if self._todo:
            self._run(self.step, self._todo.pop())
        return bool(self._todo)

    def close(self) -> None:
        """Ends the open step, done or not. A pass that is left out tears its state, as a broken one would."""
        step, self.step = self.step, None
        assert step is not None
        if self._todo:
            move = step.state_move(self._todo[-1])
            if move.write != NO_STATE:
                self.device.states[move.write] = TORN
        self._todo = []
        step.__exit__(None, None, None)

    def check_view(self, cursor: Cursor) -> None:
        """All that `cursor` sees, and that is computed and on the device, still lies where it was written."""
        for part in view(cursor):
            for page, start, stop, uids in self._slots(part, min(part.stop, part.segment.computed), away=True):
                found = self.device.read(page, start, stop)
                assert found == uids, f"{cursor} sees {found} where {uids} was written, page {page} of {part.segment}"

    def _run(self, step: Step, stretch: Stretch) -> None:
        segment, start, stop, again = stretch
        move = step.state_move(stretch)
        self._check_inputs(segment, start, move.read)
        if not again:
            for page, first, last, uids in self._slots(Part(segment, start, stop, 0), stop):
                self.device.pages[page][first:last] = uids
            self.tokens_computed += stop - start
        if move.write != NO_STATE:
            self.device.states[move.write] = self.uids(segment, stop - 1, stop)[0]
        step.publish(stretch)

    def _check_inputs(self, segment: Segment, start: int, state: int) -> None:
        for part in view(Cursor(segment, start)):
            ready = part.segment.computed
            assert part.stop <= ready, f"{segment} is computed before {part.segment} that it sees"
            for page, first, last, uids in self._slots(part, part.stop):
                found = self.device.read(page, first, last)
                assert found == uids, f"{segment} is computed from {found} where {uids} was written, page {page}"
        if state != NO_STATE:
            before = segment.path_start + start
            assert before, f"{segment} starts from a state though nothing lies before it"
            place = locate(Cursor(segment, start), before)
            expected = self.uids(place.segment, place.length - 1, place.length)[0]
            found_state = self.device.states[state]
            assert found_state == expected, f"{segment} starts from the state after token {found_state}, not {expected}"

    def _lost(self, segment: Segment) -> Collection[int]:
        return self.graph.retention.swapping.lost.get(segment, ())

    def _slots(self, part: Part, stop: int, *, away: bool = False) -> Iterator[tuple[int, int, int, list[int]]]:
        """Of the tokens `[part.start, stop)`, page by page: the page, the slots in it, and their tokens' uids.

        With `away`, pages are left out that lie in the host tier, or did not come back from it and will be computed
        again by the next step; without, they are a fault.
        """
        segment, size, pool = part.segment, self.device.page_size, self.graph.retention.pages
        assert pool is not None
        start = part.start
        while start < stop:
            end = min(stop, start - start % size + size)
            number, first = start // size, start % size
            handle = segment.pages[number]
            if handle != NO_PAGE:
                yield pool.unit(handle), first, first + end - start, self.uids(segment, start, end)
            else:
                elsewhere = number in segment.host_pages or number in self._lost(segment)
                assert away and elsewhere, f"{segment} has no page for its visible token {start}, " + (
                    "it lies in the host tier" if elsewhere else "nor has the host tier"
                )
            start = end
