"""Forward passes: what threads lack is computed, in as small pieces as the device's memory demands."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator, Sequence

from torch import Tensor

from octopus.core.errors import CapacityExceeded
from octopus.core.graph import Graph
from octopus.core.schedule import Stretch
from octopus.core.step import Step
from octopus.core.storage.kv import KVStorage
from octopus.core.thread import Thread
from octopus.models.backbone import Backbone
from octopus.rollout.device_memory import give_back_garbage, refuse_released, shortage_of
from octopus.rollout.frontier import Frontier
from octopus.rollout.logs import new_logger
from octopus.rollout.sampling import Draw, choose

LOGGER = new_logger(__name__)

OOM_RETRIES = 12
"""How often work that ran out of device memory is tried again, each time in smaller pieces."""


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
        self._logit_rows = sys.maxsize  # Shrinks likewise.
        self._pass_tokens = batch_tokens
        self._doing = ""

    def make_ready(self, sampled: Sequence[Thread], others: Sequence[Thread]) -> None:
        """Computes all that the threads have recorded, and the last hidden states of those that are sampled from.

        A pass that runs out of device memory is given up, cached memory is given back, and the rest is tried in passes
        of half the size. What had been published stays.

        Raises:
            CapacityExceeded: a pool is too small, or the device's memory even for the smallest passes.
            MemoryReleased: the store has no memory.
        """
        refuse_released(self._storage)

        def halve() -> str:
            self._batch_tokens = max(1, self._pass_tokens // 2)
            return f"a pass of {self._batch_tokens} tokens"

        self._persist(lambda: self._compute(sampled, others), halve)

    def choose(
        self, hidden_NC: Tensor, draws: Sequence[Draw], temperature: float
    ) -> tuple[list[int], list[float]]:
        """A token for each hidden state, and its log-probability; see `sampling.choose`.

        Logits that the device has no memory for are made for half as many rows at a time.

        Raises:
            CapacityExceeded: the device's memory does not suffice even for those of one row.
        """
        tokens: list[int] = []
        log_probabilities: list[float] = []

        def halve() -> str:
            self._logit_rows = max(1, min(self._logit_rows, len(draws)) // 2)
            return f"the logits of {self._logit_rows} rows"

        def go_on() -> None:
            while (done := len(tokens)) < len(draws):
                rows = slice(done, min(len(draws), done + self._logit_rows))
                self._doing = f"the logits of {rows.stop - rows.start} rows"
                more = choose(self._backbone.logits(hidden_NC[rows]), draws[rows], temperature)
                tokens.extend(more[0])
                log_probabilities.extend(more[1])

        self._persist(go_on, halve)
        return tokens, log_probabilities

    def _persist(self, act: Callable[[], None], halve: Callable[[], str]) -> None:
        """Acts until the device's memory suffices; `halve` makes the pieces smaller and says how small they are."""
        counters = self._graph.retention.counters
        for _ in range(OOM_RETRIES):
            shortage = shortage_of(act)
            if shortage is None:
                return
            counters.oom_retries += 1
            self._give_back()
            smaller = halve()
            LOGGER.warning("memory.device_short", doing=self._doing, next=smaller, device_said=shortage)
        counters.oom_refused += 1
        raise CapacityExceeded(
            f"the device's memory does not suffice for {smaller}: {shortage}; build the engine with fewer pages"
        )

    def _compute(self, sampled: Sequence[Thread], others: Sequence[Thread]) -> None:
        self._doing, self._pass_tokens = "the fingerprints of a step", self._batch_tokens
        hidden = [thread for thread in sampled if self.frontier.get(thread.cursor) is None]
        with self._graph.begin_step(
            [*sampled, *others], hidden=hidden, chunk_tokens=self._batch_tokens
        ) as step:
            for wave in step.waves:
                for batch in _batches(wave, self._batch_tokens):
                    self._pass_tokens = sum(stretch.stop - stretch.start for stretch in batch)
                    kind = "decode" if self._pass_tokens == len(batch) else "prefill"
                    self._doing = f"a {kind} pass of {self._pass_tokens} tokens"
                    self._run(batch, step)

    def _run(self, batch: list[Stretch], step: Step) -> None:
        moves = [(stretch, step.state_move(stretch)) for stretch in batch]
        hidden_NC = self._backbone.advance(moves, self._storage, page_size=self._page_size)
        for stretch, hidden_C in zip(batch, hidden_NC.unbind(), strict=True):
            step.publish(stretch)
            self.frontier.put(stretch.segment, stretch.stop, hidden_C)

    def _give_back(self) -> None:
        """Gives the device what can be spared: cached lines, and blocks that torch keeps for itself."""
        self._graph.trim()
        give_back_garbage(self._storage.device)


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
