"""An engine whose threads report words: what the root answers is a function of what it sees."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import tiny_policy
import torch
from tiny_models import tiny_qwen35

from octopus.core.ancestry import path_tokens
from octopus.core.thread import Thread
from octopus.core.visibility import mounts_on_path
from octopus.rollout.codec import Control, framed
from octopus.rollout.engine import Engine
from octopus.rollout.environment import Task
from octopus.rollout.loop import Rollouts
from octopus.rollout.modes import MODES
from octopus.rollout.records import RolloutRecord
from octopus.rollout.sampling import Draw, choose

FREE = 3
"""Words that the model samples for itself at the end of an answer."""


class Reporters(Engine):
    """Children commit the words that they are given; the root answers with all the words that it sees, in order.

    With `free` the root adds tokens of text that the model samples.
    """

    def __init__(self, words: Sequence[str], *, free: bool = False, **settings: Any) -> None:
        model = tiny_qwen35(vocab_size=2048, layers=2, initializer_range=0.06, dtype=torch.float64)
        super().__init__(model, tiny_policy.codec().transformers(), **{"pages": 400, "state_slots": 100} | settings)
        self._words = words
        self._free = FREE if free else 0

    def _choose(
        self, hidden_NC: torch.Tensor, records: Sequence[Thread], draws: Sequence[Draw], temperature: float
    ) -> tuple[list[int], list[float]]:
        logits_NV = self.backbone.logits(hidden_NC).clone()
        logits_NV[:, : len(Control)] = -torch.inf
        sampled, log_probabilities = choose(logits_NV, draws, temperature)
        planned = [self._planned(record) for record in records]
        tokens = [own if token is None else token for own, token in zip(sampled, planned, strict=True)]
        return tokens, [max(value, -1e9) for value in log_probabilities]

    def _planned(self, record: Thread) -> int | None:
        """The next token of the thread's turn, None for one that the model samples."""
        line = path_tokens(record.cursor)
        said = line[::-1].index(Control.END)  # Tokens of the turn so far.
        codec = tiny_policy.codec()
        if Control.CHILD in line:
            number = int(codec.decode_text(line[line.index(Control.CHILD) + 1 :][:1]))
            turn: list[int | None] = [*framed(Control.COMMIT, codec.encode_text(self._words[number - 1]))]
        elif Control.FORK not in line[: len(line) - said]:
            turn = [*framed(Control.FORK, codec.encode_text(str(len(self._words))))]
        else:
            words = codec.encode_text(" ".join(reversed(list(seen_words(record)))))
            turn = [int(Control.ANSWER), *words, *[None] * self._free, int(Control.END)]
        return turn[said]


def seen_words(record: Thread) -> list[str]:
    """The words that the thread has mounted, the latest first."""
    codec = tiny_policy.codec()
    return [
        codec.decode_text([token for part in mount.parts for token in part.segment.tokens[part.start : part.stop]])
        for mount in mounts_on_path(record.cursor)
    ]


def play(engine: Engine, environment: Any, seeds: Sequence[int] = (0,)) -> list[RolloutRecord]:
    rollouts = Rollouts(engine, tiny_policy.codec(), MODES["octopus"], temperature=1.0)
    (records,) = rollouts.run([Task(name="toy", environment=environment, seeds=tuple(seeds))])
    return list(records)
