"""Random episodes that end with an answer, and tiny models to score it with."""

from __future__ import annotations

import random
from collections.abc import Iterator
from copy import deepcopy
from typing import Any, NamedTuple

from credit_cases import asked, played_of
from random_graphs import ALL, RandomEpisode, random_episode
from tiny_models import VOCABULARY, tiny_llama, tiny_qwen35

from octopus.core.thread import Status
from octopus.models.backbone import Backbone
from octopus.train.config import StepConfig
from octopus.train.credit.counterfactual import Scope
from octopus.train.credit.rescore import Rescore
from octopus.train.credit.world import Played
from octopus.verify.oracle import OracleToken

FEATURES = ALL - {"cancel", "fail", "wait"}
SEEDS = {"llama": 20, "qwen3.5": 12}


class Pair(NamedTuple):
    """The same weights as the library made them, and bound to our forwards."""

    plain: Any
    backbone: Backbone


class Case(NamedTuple):
    """A random episode with an answer at its end.

    Attributes:
        played: As the trainer takes it.
        tokens: The oracle's, in time order.
        writers: Thread of each token.
        answer: Ids of the answer's tokens.
    """

    played: Played
    tokens: list[OracleToken]
    writers: list[int]
    answer: list[int]


def case_of(seed: int) -> Case | None:
    """Some running thread of a random graph answers; whoever wrote nothing on its line is a branch."""
    episode = random_episode(seed, size=30, features=FEATURES)
    rng = random.Random(seed)
    running = [t for t in episode.graph.threads if t.status is Status.RUNNING and t.own_tokens]
    if not running:
        return None
    answering = rng.choice(running)
    for other in episode.graph.threads:  # So that there is much to hide.
        if other.status in (Status.RUNNING, Status.COMMITTED) and rng.random() < 0.6:
            read(episode, answering, other)
            write(episode, answering, 1, rng)
    answer = write(episode, answering, 3, rng)
    writers = {token: segment.writer for (segment, _), token in episode.ids.items()}
    played = played_of(episode.graph, answering, answer_tokens=len(answer))
    return Case(played, episode.oracle.tokens, [writers[i] for i in range(len(writers))], answer)


def read(episode: RandomEpisode, reader: Any, source: Any) -> None:
    theirs = episode.oracle.threads
    episode.graph.read_thread(reader, source)
    episode.oracle.read(theirs[reader.id], theirs[source.id], last=None, placement="append")


def write(episode: RandomEpisode, thread: Any, count: int, rng: random.Random) -> list[int]:
    values = [rng.randrange(VOCABULARY) for _ in range(count)]
    episode.graph.append(thread, values)
    new = episode.oracle.append(episode.oracle.threads[thread.id], values)
    segment, stop = thread.cursor
    episode.ids.update({(segment, stop - count + i): token for i, token in enumerate(new)})
    return new


def cases(family: str) -> Iterator[Case]:
    return (case for case in map(case_of, range(SEEDS[family])) if case is not None and case.played.threads)


def models(family: str) -> Pair:
    if family == "llama":
        model: Any = tiny_llama()
    else:
        layers = ["full_attention", "linear_attention", "full_attention"]
        model = tiny_qwen35(layers=len(layers), layer_types=layers)
    return Pair(model, Backbone(deepcopy(model)))


def rescored(both: Pair, scope: Scope, budget_tokens: int = 100_000) -> Rescore:
    step = StepConfig(backend="sliced", logit_rows=64)
    return Rescore(both.backbone, asked(), scope=scope, step=step, budget_tokens=budget_tokens)
