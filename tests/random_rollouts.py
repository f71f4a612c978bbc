"""Random rollouts through an engine on a tiny model, and what the packed pass says of the same tokens."""

from __future__ import annotations

import math
import random
from typing import Any

import torch
from tiny_models import VOCABULARY

from octopus.attention.plan import Plan, lower
from octopus.core.errors import CapacityExceeded, OctopusError, RewindRefused
from octopus.core.segment import Segment
from octopus.core.thread import Status
from octopus.models.backbone import Backbone
from octopus.rollout.engine import Engine
from octopus.rollout.thread import Thread


class NoTokenizer:
    """Tests hand token ids to the engine; only decoding is asked for."""

    def decode(self, tokens: Any, **_: Any) -> str:
        return " ".join(map(str, tokens))


def tiny_engine(model: Any, **settings: Any) -> Engine:
    """An engine whose store is all NaN, so that reading a slot that was never written shows."""
    engine = Engine(model, NoTokenizer(), **{"pages": 200, "page_size": 4, "state_slots": 60} | settings)
    for tensor in (engine.storage.keys, engine.storage.values, engine.storage.conv, engine.storage.recurrent):
        tensor.fill_(math.nan)
    return engine


class RandomRollout:
    """Random calls on the threads of one engine; remembers every segment, evicted ones too."""

    def __init__(self, engine: Engine, seed: int) -> None:
        self.engine = engine
        self.rng = random.Random(seed)
        self.threads: list[Thread] = [engine.thread(self.ids(3))]
        self.ever = list(self.threads)
        self.segments: dict[int, Segment] = {}
        self.refused = 0

    def ids(self, count: int) -> list[int]:
        return [self.rng.randrange(VOCABULARY) for _ in range(count)]

    def run(self, calls: int) -> None:
        kinds = ["append", "generate", "fork", "read", "rewind", "commit", "drop", "compute"]
        for kind in self.rng.choices(kinds, [4, 5, 3, 4, 2, 1, 1, 1], k=calls):
            if not any(thread.status is Status.RUNNING for thread in self.threads):
                self.start(self.engine.thread(self.ids(2)))
            try:
                getattr(self, kind)()
            except CapacityExceeded:
                self.refused += 1
                self.give_up_one()
            self.engine.graph.check()
            self.segments |= self.engine.graph.retention.segments

    def running(self) -> Thread:
        return self.rng.choice([thread for thread in self.threads if thread.status is Status.RUNNING])

    def start(self, thread: Thread) -> None:
        self.threads.append(thread)
        self.ever.append(thread)

    def give_up_one(self) -> None:
        thread = self.threads.pop(self.rng.randrange(len(self.threads)))
        thread.drop()

    def append(self) -> None:
        self.running().append(self.ids(self.rng.choice((1, 1, 2, 5, 9))))

    def generate(self) -> None:
        threads = list({self.running() for _ in range(self.rng.randint(1, 3))})
        for thread in threads:
            cursor = thread.record.cursor
            if cursor.length == 0:
                thread.append(self.ids(1))
        self.engine.generate(threads, max_tokens=self.rng.randint(1, 3), temperature=1.0, stop_tokens=())

    def fork(self) -> None:
        for child in self.running().fork(self.rng.randint(1, 2)):
            self.start(child)

    def read(self) -> None:
        readable = [t for t in self.threads if t.status in (Status.RUNNING, Status.COMMITTED)]
        placement = self.rng.choice(("append", "original"))
        self.running().read_thread(
            self.rng.choice(readable), last=self.rng.choice((None, None, 2)), placement=placement
        )

    def rewind(self) -> None:
        thread = self.running()
        try:
            thread.rewind(self.rng.randint(0, thread.record.own_tokens))
        except RewindRefused as error:
            raise AssertionError("a count of own tokens can always be reached") from error

    def commit(self) -> None:
        self.running().commit(keep_running=self.rng.random() < 0.5)

    def drop(self) -> None:
        if len(self.threads) > 1:
            self.give_up_one()

    def compute(self) -> None:
        self.engine.compute([self.running()])

    def recorded(self) -> dict[tuple[Segment, int], float]:
        """The log-probability of every sampled token as the engine recorded it, by (segment, offset)."""
        return {(c.segment, c.length - 1): value for thread in self.ever for c, value in thread.sampled}


def packed_log_probabilities(
    backbone: Backbone, segments: list[Segment], places: list[tuple[Segment, int]]
) -> list[float]:
    """What the trainer's pass gives the same tokens, each from its predecessor on the path."""
    plan: Plan = lower(segments)
    with torch.no_grad():
        log_probabilities_TV = backbone.logits(backbone.packed(plan)).log_softmax(-1)
    rows = [plan.starts[segment] + offset for segment, offset in places]
    return [
        float(log_probabilities_TV[plan.predecessors_T[row], plan.tokens_T[row]]) for row in rows
    ]


__all__ = ["OctopusError", "RandomRollout", "packed_log_probabilities", "tiny_engine"]
