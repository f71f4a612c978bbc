"""Forward passes: what threads lack is computed, in as small pieces as the device's memory demands."""

from __future__ import annotations

import gc
from collections.abc import Iterator, Sequence

import torch

from octopus.core.errors import CapacityExceeded
from octopus.core.graph import Graph
from octopus.core.schedule import Stretch
from octopus.core.step import Step
from octopus.core.storage import KVStorage
from octopus.core.thread import Thread
from octopus.models.backbone import Backbone
from octopus.rollout.frontier import Frontier

OOM_RETRIES = 12
"""How often a step that ran out of device memory is tried again, each time in smaller passes."""


class Passes:
    """Runs a graph's steps on a backbone.

    Attributes:
        frontier: The last hidden states.
    """

    def __init__(
        self, graph: Graph, backbone: Backbone, storage: KVStorage, page_size: int, batch_tokens: int
    ) -> None:
        """`batch_tokens` is the most tokens of one pass; it shrinks for good when the device's memory is too small."""
        self.frontier = Frontier()
        self._graph = graph
        self._backbone = backbone
        self._storage = storage
        self._page_size = page_size
        self._batch_tokens = batch_tokens

    def make_ready(self, sampled: Sequence[Thread], others: Sequence[Thread]) -> None:
        """Computes all that the threads have recorded, and the last hidden states of those that are sampled from.

        A pass that runs out of device memory is given up, cached memory is given back, and the rest is tried in passes
        of half the size. What had been published stays.

        Raises:
            CapacityExceeded: a pool is too small, or the device's memory even for the smallest passes.
        """
        counters = self._graph.retention.counters
        for _ in range(OOM_RETRIES):
            shortage = self._attempt(sampled, others)
            if shortage is None:
                return
            counters.oom_retries += 1
            self._give_back()
            self._batch_tokens = max(1, self._batch_tokens // 2)
        counters.oom_refused += 1
        raise CapacityExceeded(
            f"the device's memory does not suffice for a pass of {self._batch_tokens} tokens: {shortage}; "
            "build the engine with fewer pages"
        )

    def _attempt(self, sampled: Sequence[Thread], others: Sequence[Thread]) -> str | None:
        """One try. Returns what the device said if its memory did not suffice.

        The error itself goes with the handler: its traceback would keep the tensors of the failed pass alive.
        """
        hidden = [thread for thread in sampled if self.frontier.get(thread.cursor) is None]
        with self._graph.begin_step(
            [*sampled, *others], hidden=hidden, chunk_tokens=self._batch_tokens
        ) as step:
            try:
                for wave in step.waves:
                    for batch in _batches(wave, self._batch_tokens):
                        self._run(batch, step)
            except torch.OutOfMemoryError as error:
                return str(error).partition("\n")[0]
        return None

    def _run(self, batch: list[Stretch], step: Step) -> None:
        moves = [(stretch, step.state_move(stretch)) for stretch in batch]
        hidden_NC = self._backbone.advance(moves, self._storage, page_size=self._page_size)
        for stretch, hidden_C in zip(batch, hidden_NC.unbind(), strict=True):
            step.publish(stretch)
            self.frontier.put(stretch.segment, stretch.stop, hidden_C)

    def _give_back(self) -> None:
        """Gives the device what can be spared: cached lines, and blocks that torch keeps for itself."""
        self._graph.trim()
        gc.collect()
        if self._storage.keys.is_cuda:
            torch.cuda.empty_cache()


def _batches(wave: list[Stretch], batch_tokens: int) -> Iterator[list[Stretch]]:
    """Cuts a wave into batches of at most `batch_tokens` tokens; no stretch is longer than that."""
    batch: list[Stretch] = []
    tokens = 0
    for stretch in wave:
        length = stretch.stop - stretch.start
        if batch and tokens + length > batch_tokens:
            yield batch
            batch, tokens = [], 0
        batch.append(stretch)
        tokens += length
    if batch:
        yield batch
