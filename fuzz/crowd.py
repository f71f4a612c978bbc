"""A crowd: many Python threads do mixed things to one store at once, without any scheduler, and leave it empty.

Copies between the tiers arrive late, from a thread of their own.
"""

from __future__ import annotations

import queue
import random
import sys
import threading
from collections import Counter
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass

from fuzz.copier import FuzzCopier
from fuzz.device import Memory
from fuzz.engine import Engine
from fuzz.operations import PAGE
from fuzz.stage import uids_by_place
from fuzz.world import Setup
from octopus.core.errors import OctopusError
from octopus.core.graph import Graph
from octopus.core.host import HostTier, Transfer
from octopus.core.pool import PagePool, StatePool
from octopus.core.thread import Status, Thread

MOST_THREADS = 60
MOST_TOKENS = 120
SETUPS = (
    Setup(pages=600, host_pages=400),
    Setup(pages=120, host_pages=60, states=24, host_states=12),
    Setup(pages=120, host_pages=60),
    Setup(pages=600, host_pages=400, states=120, host_states=60),
)
"""With room for all and without, with recurrent states and without."""
SWITCH_S = 1e-4
"""Python changes threads so often; at its own 5 ms most calls would end undisturbed."""
KINDS = {
    "root": 1, "fork": 4, "append": 8, "compute": 6, "read": 4, "rewind": 2, "commit": 2, "drop": 5, "cancel": 0.3,
    "wait": 1, "match": 2, "preempt": 0.5, "offload": 1, "evict": 1, "stats": 0.3, "end_turn": 1, "fork_snapshot": 1,
    "make_room": 0.5, "audit": 0.02,
}  # fmt: skip


@dataclass(frozen=True, kw_only=True, slots=True)
class CrowdReport:
    """What a crowd did: calls by kind, and refusals by the name of the error."""

    calls: Counter[str]
    refusals: Counter[str]


class LateCopier(FuzzCopier):
    """Completes each transfer a moment later, from a thread of its own. Used with `with`."""

    def __init__(self, device: Memory, host: Memory) -> None:
        super().__init__(device, host, prompt=False)
        self._started: queue.Queue[Transfer | None] = queue.Queue()
        self._thread = threading.Thread(target=self._run)

    def start(self, transfer: Transfer) -> None:
        """Takes the transfer on."""
        self._tear(transfer)
        self._started.put(transfer)

    def __enter__(self) -> LateCopier:
        self._thread.start()
        return self

    def __exit__(self, *exception: object) -> None:
        self._started.put(None)
        self._thread.join()

    def _run(self) -> None:
        while (transfer := self._started.get()) is not None:
            self._copy(transfer)
            transfer.complete(ok=True)
            assert not transfer.complete(ok=False), "a second outcome of a transfer was taken"


class Crowd:
    """The store that they share."""

    def __init__(self, copier: LateCopier) -> None:
        device, memory = copier.device, copier.host
        self.pages = PagePool(len(device.pages), page_size=PAGE)
        self.states = StatePool(len(device.states)) if device.states else None
        host = HostTier(pages=len(memory.pages), states=len(memory.states), copier=copier, timeout_s=10.0)
        self.graph = Graph(pages=self.pages, states=self.states, host=host)
        self.engine = Engine(self.graph, copier.device, uids_by_place)
        self.threads: list[Thread] = []
        self.calls: Counter[str] = Counter()
        self.refusals: Counter[str] = Counter()

    def work(self, seed: int, operations: int) -> None:
        """One member's mixed calls. Raises whatever is not an error of the world."""
        rng = random.Random(seed)
        calls: Counter[str] = Counter()
        refusals: Counter[str] = Counter()
        for kind in rng.choices(list(KINDS), list(KINDS.values()), k=operations):
            calls[kind] += 1
            try:
                self._do(kind, rng)
            except OctopusError as error:
                refusals[type(error).__name__] += 1
        with self.graph.lock:
            self.calls += calls
            self.refusals += refusals

    def _do(self, kind: str, rng: random.Random) -> None:
        graph, threads = self.graph, list(self.threads)
        if kind == "root" or not threads:
            self._adopt([graph.thread()])
            return
        one, other = rng.choice(threads), rng.choice(threads)
        if len(threads) > MOST_THREADS or one.cursor.path_length > MOST_TOKENS:
            self._drop(one)
            return
        calls: dict[str, Callable[[], object]] = {
            "fork": lambda: self._adopt(graph.fork(one, rng.randint(1, 2))),
            "append": lambda: graph.append(one, [rng.randrange(4) for _ in range(rng.choice((1, 1, PAGE, PAGE + 1)))]),
            "compute": lambda: self.engine.compute([one]),
            "read": lambda: graph.read_thread(one, other, last=rng.choice((None, 2))),
            "rewind": lambda: graph.rewind(one, max(0, one.own_tokens - rng.randrange(4))),
            "commit": lambda: graph.commit(one, keep_running=rng.random() < 0.5),
            "drop": lambda: self._drop(one),
            "cancel": lambda: graph.cancel(one),
            "wait": lambda: graph.withdraw(graph.wait_threads(one, [other])),
            "match": lambda: self._adopt([graph.thread_from([rng.randrange(4) for _ in range(PAGE)])[0]]),
            "preempt": lambda: graph.preempt(one),
            "offload": lambda: self._offload(one),
            "evict": graph.evict,
            "stats": graph.stats,
            "end_turn": lambda: graph.end_turn(one),
            "fork_snapshot": lambda: self._adopt(graph.fork(graph.commit(one, keep_running=True))),
            "make_room": lambda: graph.make_room(pages=rng.randrange(8), states=rng.randrange(2) if self.states else 0),
            "audit": graph.audit,
        }
        calls[kind]()

    def _offload(self, thread: Thread) -> None:
        with self.graph.lock:  # So that the thread is still idle when it comes to it.
            if thread.status is not Status.RUNNING:
                self.graph.offload(thread)

    def _adopt(self, threads: list[Thread]) -> None:
        self.threads.extend(threads)

    def _drop(self, thread: Thread) -> None:
        self.graph.drop(thread)
        self.threads.remove(thread)

    def leave(self) -> None:
        """Everybody goes. Raises AssertionError unless every page and state slot is free, on both tiers."""
        graph = self.graph
        assert graph.wait_transfers(timeout_s=20.0), "a copy never arrived"
        graph.audit()
        for thread in graph.threads:
            graph.drop(thread)
        graph.trim()
        graph.audit()
        assert graph.wait_transfers(timeout_s=20.0)
        stats = graph.stats()
        for figures in (stats.pages, stats.states, stats.host_pages, stats.host_states):
            assert figures.free == figures.capacity, f"{figures} when everybody has gone"
        assert not graph.segments and not graph.threads


@contextmanager
def _restless() -> Iterator[None]:
    """Python changes threads every few operations."""
    before_s = sys.getswitchinterval()
    sys.setswitchinterval(SWITCH_S)
    try:
        yield
    finally:
        sys.setswitchinterval(before_s)


def rush(seed: int, *, members: int, operations: int, setup: Setup = SETUPS[0]) -> CrowdReport:
    """`members` Python threads with `operations` calls each. Raises the first thing that went wrong."""
    device = Memory(pages=setup.pages, page_size=setup.page_size, states=setup.states)
    host = Memory(pages=setup.host_pages, page_size=setup.page_size, states=setup.host_states)
    with _restless(), LateCopier(device, host) as copier:
        crowd = Crowd(copier)
        with ThreadPoolExecutor(members) as pool:
            futures = [pool.submit(crowd.work, seed * 1_000 + member, operations) for member in range(members)]
            for future in futures:
                future.result()
        crowd.leave()
    return CrowdReport(calls=crowd.calls, refusals=crowd.refusals)
