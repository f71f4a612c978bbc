"""Random episodes: the same random calls on a `Graph` and on the raw-list `Oracle`.

A seed names an episode. Both sides are compared while they are driven: what a call returns, where the thread then
stands, what is refused. What the tokens see is left to the tests; what occurred is told by `graph_features`.
"""

from __future__ import annotations

import random
from collections.abc import Collection
from typing import NamedTuple

import numpy as np
import pytest

from octopus.attention.plan import Plan, lower
from octopus.core.cursor import Cursor
from octopus.core.errors import RewindRefused
from octopus.core.graph import Graph
from octopus.core.mount import Placement
from octopus.core.segment import Segment
from octopus.core.thread import Mark, Snapshot, Thread
from octopus.verify.oracle import Oracle, OracleSnapshot, OracleThread, Place, Refused

VOCABULARY = 29
WEIGHTS = {
    "append": 10.0, "read": 8.0, "fork": 5.0, "rewind": 4.0, "mark": 3.0, "commit": 2.0,
    "wait": 0.5, "cancel": 0.2, "fail": 0.2, "root": 0.3,
}  # fmt: skip
ALL = frozenset(WEIGHTS) | {"original"}
APPEND_ONLY = ALL - {"original"}
FORK_ONLY = ALL - {"read", "wait"}
LONG = (63, 64, 65)
LONG_FROM_SIZE = 100


class Event(NamedTuple):
    """One call and what it did to its thread. `cursor` and `segments` (their number) are as they were after it."""

    kind: str
    thread: OracleThread
    before: Place
    after: Place
    cursor: Cursor
    segments: int
    source: OracleThread | None = None
    new: tuple[int, ...] = ()
    detail: str = ""


class RandomEpisode(NamedTuple):
    """A graph, its oracle, the oracle's id of the token at each (segment, offset), and every call that was made."""

    graph: Graph
    oracle: Oracle
    ids: dict[tuple[Segment, int], int]
    events: list[Event]


def random_episode(seed: int, *, size: int, features: Collection[str] = ALL) -> RandomEpisode:
    """Make random calls of the kinds in `features` until `size` tokens are written.

    From a size of 100 tokens on, fresh segments are sometimes filled with 63, 64 or 65 tokens at once.
    """
    driver = _Driver(random.Random(seed), size=size, features=features)
    kinds = [kind for kind in WEIGHTS if kind in features]
    driver.root()
    if driver.rng.random() < 0.8:
        driver.append()
    for kind in driver.rng.choices(kinds, [WEIGHTS[kind] for kind in kinds], k=6 * size):
        if len(driver.oracle.tokens) >= size:
            break
        getattr(driver, kind)()
    driver.graph.check()
    return RandomEpisode(driver.graph, driver.oracle, driver.ids, driver.events)


def lowered(episode: RandomEpisode) -> tuple[Plan, np.ndarray]:
    """The plan, and the row of each token by oracle id."""
    plan = lower(episode.graph.segments, waits=episode.graph.waits)
    rows_I = np.empty(len(episode.oracle.tokens), dtype=np.int64)
    for (segment, offset), token_id in episode.ids.items():
        rows_I[token_id] = plan.starts[segment] + offset
    return plan, rows_I


class _Line:
    """One thread on both sides, and the names given to its places."""

    def __init__(self, ours: Thread, theirs: OracleThread) -> None:
        self.ours, self.theirs = ours, theirs
        self.marks: list[tuple[Mark, Place]] = []
        self.snapshots: list[tuple[Snapshot, OracleSnapshot]] = []

    @property
    def readable(self) -> bool:
        return self.theirs.status in ("running", "committed")


class _Driver:
    def __init__(self, rng: random.Random, *, size: int, features: Collection[str]) -> None:
        self.rng, self.long_segments = rng, size >= LONG_FROM_SIZE
        self.placements: list[Placement] = ["append", "append"]
        if "original" in features:
            self.placements.append("original")
        self.graph, self.oracle = Graph(), Oracle()
        self.lines: list[_Line] = []
        self.ids: dict[tuple[Segment, int], int] = {}
        self.events: list[Event] = []

    def pick(self) -> _Line:
        """A running thread; the youngest are picked more often, so that graphs grow deep."""
        running = [line for line in self.lines if line.theirs.status == "running"]
        if not running:
            return self.root()
        return running[-1 - min(int(self.rng.expovariate(0.5)), len(running) - 1)]

    def done(
        self,
        kind: str,
        line: _Line,
        before: Place,
        *,
        source: _Line | None = None,
        new: tuple[int, ...] = (),
        detail: str = "",
    ) -> None:
        """Compare both sides of the thread and record the call."""
        ours, theirs = line.ours, line.theirs
        assert ours.status.value == theirs.status
        assert ours.own_tokens == theirs.own_count
        assert ours.cursor.next_position == theirs.place.next_position
        at, named = (ours.cursor, len(self.graph.segments)), source and source.theirs
        self.events.append(Event(kind, theirs, before, theirs.place, *at, named, new, detail))

    def root(self) -> _Line:
        return self.open(self.graph.thread(), self.oracle.thread())

    def open(self, ours: Thread, theirs: OracleThread) -> _Line:
        line = _Line(ours, theirs)
        self.lines.append(line)
        self.done("open", line, theirs.place)
        return line

    def append(self) -> None:
        line = self.pick()
        before, count = line.theirs.place, self.rng.choice((1, 1, 1, 2, 2, 3, 5))
        if self.long_segments and not line.ours.cursor.segment.tokens and self.rng.random() < 0.3:
            count = self.rng.choice(LONG)
        values = [self.rng.randrange(VOCABULARY) for _ in range(count)]
        self.graph.append(line.ours, values)
        new = self.oracle.append(line.theirs, values)
        segment, stop = line.ours.cursor
        self.ids |= {(segment, stop - count + i): token_id for i, token_id in enumerate(new)}
        self.done("append", line, before, new=tuple(new))

    def fork(self) -> None:
        line = self.pick()
        kept = [line for line in self.lines if line.snapshots and line.readable]
        if kept and self.rng.random() < 0.2:
            line = self.rng.choice(kept)
            ours, theirs = self.rng.choice(line.snapshots)
            self.done("fork of a snapshot", line, line.theirs.place)
            pairs = zip(self.graph.fork(ours), self.oracle.fork(theirs), strict=True)
        else:
            n = self.rng.choice((1, 1, 2, 3))
            self.done("fork", line, line.theirs.place)
            pairs = zip(self.graph.fork(line.ours, n), self.oracle.fork(line.theirs, n), strict=True)
        for ours, theirs in pairs:
            self.open(ours, theirs)

    def read(self) -> None:
        reader = self.pick()
        readable = [line for line in self.lines if line.readable]
        newer = [
            line for line in readable if not line.theirs.place.seen.keys() <= reader.theirs.place.seen.keys()
        ]
        source = self.rng.choice(newer if newer and self.rng.random() < 0.7 else readable)
        before, last = reader.theirs.place, self.rng.choice((None, None, 1, 2, 4))
        placement = self.rng.choice(self.placements)
        count = self.graph.read_thread(reader.ours, source.ours, last=last, placement=placement)
        new = self.oracle.read(reader.theirs, source.theirs, last=last, placement=placement)
        assert count == len(new)
        detail = f"{placement} {'last' if last else 'all'}"
        self.done("read", reader, before, source=source, new=tuple(new), detail=detail)

    def rewind(self) -> None:
        line = self.pick()
        before, own = line.theirs.place, line.theirs.own_count
        places: dict[str, list[tuple[int | Mark | Snapshot, int | Place | OracleSnapshot]]] = {
            "count": [(n, n) for n in range(own + 2)][-6:],
            "mark": [*line.marks],
            "snapshot": [*line.snapshots],
        }
        target = self.rng.choice([kind for kind in places if places[kind]])
        ours, theirs = self.rng.choice(places[target])
        if theirs == own + 1:
            with pytest.raises(Refused):
                self.oracle.rewind(line.theirs, theirs)
            with pytest.raises(RewindRefused):
                self.graph.rewind(line.ours, ours)
            return self.done("rewind refused", line, before)
        on_line = target == "count" or getattr(theirs, "place", theirs) in line.theirs.line()
        try:
            self.graph.rewind(line.ours, ours)
        except RewindRefused:
            # Nobody holds a place for a mark: it may be gone once the thread has left the line it is on.
            assert (target, on_line) == ("mark", False)
            return self.done("rewind refused", line, before, detail="abandoned mark")
        self.oracle.rewind(line.theirs, theirs)
        return self.done("rewind", line, before, detail=target if on_line else f"{target} off the line")

    def mark(self) -> None:
        line = self.pick()
        line.marks.append((self.graph.mark(line.ours), self.oracle.mark(line.theirs)))
        self.done("mark", line, line.theirs.place)

    def commit(self) -> None:
        line = self.pick()
        own, keep_running = line.theirs.own_count, self.rng.random() < 0.5
        start, stop = sorted((self.rng.randint(0, own), self.rng.randint(0, own)))
        span = (start, stop) if self.rng.random() < 0.6 else None
        ours = self.graph.commit(line.ours, span=span, keep_running=keep_running)
        theirs = self.oracle.commit(line.theirs, span=span, keep_running=keep_running)
        line.snapshots.append((ours, theirs))
        self.done("commit", line, line.theirs.place)

    def wait(self) -> None:
        line = self.pick()
        finished = [other for other in self.lines if other.theirs.status != "running"]
        if finished:
            awaited = self.rng.choice(finished)
            assert self.graph.wait_threads(line.ours, [awaited.ours]).done
            self.done("wait", line, line.theirs.place, source=awaited)

    def cancel(self) -> None:
        line = self.pick()
        self.graph.cancel(line.ours)
        self.oracle.cancel(line.theirs)
        for other in self.lines:
            self.done("cancel", other, other.theirs.place)

    def fail(self) -> None:
        line = self.pick()
        self.graph.fail(line.ours, "a tool broke")
        self.oracle.fail(line.theirs)
        self.done("fail", line, line.theirs.place)
