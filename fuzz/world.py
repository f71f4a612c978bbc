"""A store and its model side by side: whatever is done is done to both, and both must say the same.

What a fuzzer does is in `moves` and `memory_moves`, what must hold after every move in `comparison`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import TypeVar

from fuzz.copier import FuzzCopier
from fuzz.device import Memory
from fuzz.engine import Engine
from fuzz.faults import Failure, FaultyPages, FaultyStates
from fuzz.lines import Line
from fuzz.model import Model, ModelSnapshot, ModelThread, Refused
from fuzz.model_waits import ModelWait
from fuzz.operations import PAGE
from octopus.core.errors import CapacityExceeded, OctopusError, StillLoading
from octopus.core.graph import Graph
from octopus.core.host import HostTier
from octopus.core.seals import Seals
from octopus.core.segment import Segment
from octopus.core.thread import Mark, Snapshot, Thread
from octopus.core.trace import Trace
from octopus.core.waits import Wait

Ours = TypeVar("Ours")
Theirs = TypeVar("Theirs")
NO_HOST = -1


@dataclass(frozen=True, kw_only=True, slots=True)
class Setup:
    """What a world is built from: a case is a set-up and a list of operations."""

    pages: int = 40
    page_size: int = PAGE
    states: int = 0  # 0 for a model without recurrent layers
    host_pages: int = NO_HOST
    host_states: int = 0
    prompt: int = 1  # whether copies complete at once
    sealed: int = 0  # whether every page that a step reads is checked


class Clock:
    """Time that passes only when somebody says so."""

    def __init__(self) -> None:
        self.now_s = 0.0

    def __call__(self) -> float:
        """The time, in seconds."""
        return self.now_s


@dataclass(kw_only=True, slots=True, eq=False)
class Pair:
    """A thread on both sides, and the names that were given to its places."""

    ours: Thread
    theirs: ModelThread
    marks: list[tuple[Mark, Line]] = field(default_factory=list)
    snapshots: list[tuple[Snapshot, ModelSnapshot]] = field(default_factory=list)
    last_status: str = "running"
    salt: str = ""

    @property
    def running(self) -> bool:
        """Whether the thread can go on, weights aside."""
        return self.theirs.status == "running"


class World:
    """The store, its model, and everything that either side has handed out.

    Attributes:
        pairs: Threads that have not been dropped, oldest first.
        dropped: The last few handles that were given back.
        uids: For each segment index, the uid of each of its tokens.
        waits: Waits that are open, or ended since the last check, on both sides.
        written_for: The salt and the weights version that each token was written for, by uid.
        matches: How many tokens each look-up of a prefix has found.
        refusals: How often the store refused for want of memory.
    """

    def __init__(self, setup: Setup) -> None:
        self.setup = setup
        self.clock = Clock()
        self.failure = Failure()
        self.pages = FaultyPages(setup.pages, page_size=setup.page_size, failure=self.failure)
        self.states = FaultyStates(setup.states, failure=self.failure) if setup.states else None
        device = Memory(pages=setup.pages, page_size=setup.page_size, states=setup.states)
        host = Memory(pages=max(0, setup.host_pages), page_size=setup.page_size, states=setup.host_states)
        self.copier = FuzzCopier(device, host, prompt=bool(setup.prompt))
        self.graph = Graph(
            pages=self.pages,
            states=self.states,
            trace=Trace(),
            clock_s=self.clock,
            host=self._host_tier(),
            seals=Seals(device, rate=1.0) if setup.sealed else None,
        )
        self.uids: dict[int, list[int]] = {}
        self.engine = Engine(self.graph, device, self._uids)
        self.model = Model(self.clock)
        self.pairs: list[Pair] = []
        self.dropped: list[Thread] = []
        self.waits: list[tuple[Wait, ModelWait]] = []
        self.written_for: dict[int, tuple[str, int]] = {}
        self.matches: list[int] = []
        self.refusals = 0

    def _uids(self, segment: Segment, start: int, stop: int) -> list[int]:
        return self.uids[segment.index][start:stop]

    def _host_tier(self) -> HostTier | None:
        setup = self.setup
        if setup.host_pages == NO_HOST:
            return None
        tier = HostTier(pages=setup.host_pages, states=setup.host_states, copier=self.copier, timeout_s=0.0)
        if tier.pages is not None:
            tier.pages = FaultyPages(setup.host_pages, page_size=setup.page_size, failure=self.failure)
        if tier.states is not None:
            tier.states = FaultyStates(setup.host_states, failure=self.failure)
        return tier

    # ---- who is meant ----

    def pick(self, number: int) -> Pair | None:
        """The thread that `number` means: mostly a running one, the youngest first; None if there is none."""
        running = self.ready(self.pairs)
        choices = self.pairs if number % 8 == 7 or not running else running
        return choices[-1 - number % len(choices)] if choices else None

    def ready(self, pairs: Iterable[Pair]) -> list[Pair]:
        """Those that can go on."""
        return [pair for pair in pairs if pair.running and pair.theirs.weights == self.model.weights]

    def pick_ready(self, *numbers: int) -> list[Pair]:
        """The threads meant that can go on, each once."""
        return self.ready(dict.fromkeys(pair for number in numbers if (pair := self.pick(number)) is not None))

    def adopt(self, ours: Thread, theirs: ModelThread, *, salt: str = "") -> Pair:
        """Both sides have opened the same thread, in the namespace of `salt`."""
        self.pairs.append(Pair(ours=ours, theirs=theirs, salt=salt))
        return self.pairs[-1]

    # ---- doing things ----

    def both(self, ours: Callable[[], Ours], theirs: Callable[[], Theirs]) -> tuple[Ours, Theirs] | None:
        """The results of a call on both sides; None if both refuse it, with the same error."""
        refused: Exception | None = None
        expected: str | None = None
        try:
            done = ours()
        except (OctopusError, ValueError) as error:
            refused = error
        try:
            told = theirs()
        except Refused as error:
            expected = str(error)
        if refused is None and expected is None:
            return done, told
        if type(refused).__name__ != expected:
            raise AssertionError(f"the store said {refused!r}, the model {expected or 'that it is allowed'}")
        return None

    def if_there_is_room(self, call: Callable[[], object]) -> bool:
        """Makes a call that may be refused for want of memory. Whether it was carried out."""
        try:
            call()
        except (CapacityExceeded, StillLoading):
            self.refusals += 1
            return False
        return True
