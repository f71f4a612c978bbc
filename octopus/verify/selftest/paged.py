"""Our paged decoder, for the audits of paged decoders."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from octopus.core.thread import Thread
from octopus.rollout.engine import Engine
from octopus.rollout.sampling import Draw
from octopus.verify.functional.paged import Circumstances
from octopus.verify.selftest.bench import MODELS

PAGE_SIZE, DECODED = 4, 5
ROOT, WRITTEN, OTHER, LATER = [3, 1, 4, 1, 5, 9], [2, 6, 5, 3, 5], [8, 9, 7, 9, 3], [2, 3, 8]


@dataclass(frozen=True, kw_only=True)
class EngineStack:
    """An engine of a tiny model. Two branches; one reads the other and decodes; no length is a multiple of a page.

    Attributes:
        family: Name of the model in `MODELS`.
        dtype: Of its weights.
        capacity: Pages.
        backend: What computes attention over stored keys.
    """

    family: str
    dtype: torch.dtype
    capacity: int = 24
    backend: str = "torch"

    def decode(self, circumstances: Circumstances) -> Tensor:
        """The tokens and log-probabilities that the reader samples greedily, one a row."""
        engine = self._engine(circumstances)
        graph = engine.graph
        root = graph.thread()
        graph.append(root, ROOT)
        writer, reader = graph.fork(root, 2)
        graph.append(writer, OTHER if circumstances.other_text else WRITTEN)
        graph.append(reader, [7])
        _compute(engine, [writer, reader])
        graph.read_thread(reader, writer)
        if circumstances.writer_goes_on:
            graph.append(writer, LATER)
            _compute(engine, [writer])
            graph.commit(writer)
        graph.append(reader, [1])
        sampled = []
        for draw in range(DECODED):
            chosen = engine.sample([reader], [Draw(0, reader.path, draw)], temperature=0.0)
            graph.append(reader, [chosen[0][0]])
            sampled += chosen
        return torch.tensor(sampled, dtype=torch.float64)

    def _engine(self, circumstances: Circumstances) -> Engine:
        nobody: Any = None  # nothing here is text
        engine = Engine(
            MODELS[self.family](self.dtype), nobody, pages=self.capacity, page_size=PAGE_SIZE, state_slots=16,
            backend=self.backend,
        )  # fmt: skip
        for store in (
            engine.storage.keys,
            engine.storage.values,
            engine.storage.conv,
            engine.storage.recurrent,
        ):
            store.fill_(circumstances.fill)
        if circumstances.pages is not None:
            _take_in_order(engine, circumstances.pages)
        return engine


def _take_in_order(engine: Engine, pages: Sequence[int]) -> None:
    """Leaves the pool's free list such that the pages are taken in this order, the first one first."""
    pool = engine.graph.retention.pages
    assert pool is not None
    handles = {pool.unit(handle): handle for handle in pool.allocate(pool.capacity)}
    pool.release([handles[page] for page in reversed(pages)])


def _compute(engine: Engine, records: Sequence[Thread]) -> None:
    engine.sample([], [], temperature=0.0, also=records)
