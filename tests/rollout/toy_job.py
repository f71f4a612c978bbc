"""A job of toy size: three documents, a codec, tiny engines, and policies that say what a test wants them to."""

from __future__ import annotations

import math
import random
from collections.abc import Callable, Mapping, Sequence
from functools import cache
from typing import Any

import torch
from tiny_models import tiny_qwen35

from octopus.core.ancestry import path_tokens
from octopus.core.thread import Thread
from octopus.retrieval.corpus import Document
from octopus.retrieval.questions import Question
from octopus.retrieval.retriever import Hit
from octopus.rollout.codec import Codec, Control, framed
from octopus.rollout.engine import Engine
from octopus.rollout.environment import DescribedObjects, Task
from octopus.rollout.loop import Rollouts
from octopus.rollout.modes import MODES
from octopus.rollout.records import RolloutRecord
from octopus.rollout.sampling import Draw
from octopus.rollout.tools import Tool

DOCUMENTS = (
    Document(id="a", name="snow.fall", text="white snow falls on the cold hill"),
    Document(id="b", name="Oven_2", text="red fire burns in the oven"),
    Document(id="c", name="sea", text="blue sky over the quiet sea"),
)
QUESTION = Question(
    id="q",
    parts=("snow white", "fire oven", "quiet sky"),
    gold=("a", "b", "c"),
    answer="snow.fall, Oven_2, sea",
    split="test",
)
TOOLS_OF_A_TURN = Callable[[int], Mapping[str, Tool]]


class WordRetriever:
    """Ranks documents by the number of words that they share with the query."""

    def search(self, query: str, k: int) -> list[Hit]:
        words = set(query.split())
        hits = [Hit(document_id=d.id, score=float(len(words & set(d.text.split())))) for d in DOCUMENTS]
        return sorted((hit for hit in hits if hit.score), key=lambda hit: -hit.score)[:k]

    def get_document(self, document_id: str) -> Document:
        return next(document for document in DOCUMENTS if document.id == document_id)


class Box:
    """An environment with the tools that a test gives it; the right answer is `yes`."""

    gold = ()

    def __init__(self, tools: TOOLS_OF_A_TURN) -> None:
        self.tools = tools

    def prompt(self, codec: Codec) -> list[int]:
        return framed(Control.QUESTION, codec.encode_text("what?"))

    def score(self, answer: str, *, lost: Any = ()) -> float:
        return float(answer == "yes")


def question(**settings: Any) -> DescribedObjects:
    return DescribedObjects(question=QUESTION, retriever=WordRetriever(), **settings)


def box(function: Callable[..., Any], **limits: Any) -> Box:
    """A box whose only tool is `search`, in every turn."""
    from octopus.rollout.tools import ToolLimits

    tool = Tool(function, limits=ToolLimits(**{"retries": 0, "time_s": 5.0} | limits))
    return Box(lambda turn: {"search": tool})


@cache
def codec() -> Codec:
    words = [text for document in DOCUMENTS for text in (document.name, document.text)]
    return Codec.train([*words, *QUESTION.parts, "what? yes no 1 2 3 4"] * 5)


def say(control: Control, text: str = "") -> list[int]:
    return framed(control, codec().encode_text(text))


class PolicyEngine(Engine):
    """Samples what `policy` says; log-probabilities are the model's. The store is NaN where nothing was written."""

    def __init__(self, policy: Callable[[Thread, Draw], int] | None = None, **settings: Any) -> None:
        # Less steep than other tests' models, where float32 alone makes 1e-5 at one token in ten thousand.
        model = tiny_qwen35(
            vocab_size=2048, layers=2, initializer_range=0.06, dtype=settings.pop("dtype", torch.float32)
        )
        super().__init__(model, codec().transformers(), **{"pages": 1500, "state_slots": 500} | settings)
        self.policy = policy
        self.chosen: list[int] = []  # How many tokens each step sampled.
        for tensor in (self.storage.keys, self.storage.values, self.storage.conv, self.storage.recurrent):
            tensor.fill_(math.nan)

    def _choose(
        self, hidden_NC: torch.Tensor, records: Sequence[Thread], draws: Sequence[Draw], temperature: float
    ) -> tuple[list[int], list[float]]:
        self.chosen.append(len(records))
        if self.policy is None:
            return super()._choose(hidden_NC, records, draws, temperature)
        tokens = [self.policy(record, draw) for record, draw in zip(records, draws, strict=True)]
        log_probabilities_NV = self.backbone.logits(hidden_NC).log_softmax(-1)
        return tokens, log_probabilities_NV[range(len(tokens)), tokens].tolist()

    def held(self) -> tuple[int, int, int]:
        """Pages and states in use, and threads alive."""
        self.graph.check()
        retention = self.graph.retention
        return retention.pages.used, retention.states.used, len(self.graph.threads)


def following(script: Mapping[tuple[int, ...], Sequence[int]]) -> Callable[[Thread, Draw], int]:
    """The policy that samples the given tokens, by the agent's place in its episode."""
    return lambda record, draw: script[draw.path][draw.made]


def wandering(mode: str) -> Callable[[Thread, Draw], int]:
    """A policy that mostly keeps to the grammar of a mode, at random."""
    solo = {Control.SEARCH: 5, Control.REWIND: 2}
    shared = solo if mode == "single" else solo | {Control.FORK: 4, Control.READ: 2, Control.COMMIT: 1}
    return lambda record, draw: wander(record, draw, shared | ({Control.ANSWER: 1} if draw.path == (0,) else {}))


def wander(record: Thread, draw: Draw, weights: Mapping[Control, int]) -> int:
    """The next token: an action, a number or a word, an end, or now and then anything."""
    rng = random.Random(repr(draw))
    last = path_tokens(record.cursor)[-1]
    numbers = [codec().encode_text(str(number))[0] for number in (1, 2, 3)]
    if rng.random() < 0.01:
        return rng.randrange(2048)
    if last == Control.END:
        return int(rng.choices(list(weights), list(weights.values()))[0])
    if last in (Control.FORK, Control.READ, Control.REWIND):
        return rng.choice(numbers)
    if last in numbers or rng.random() < 0.3:
        return int(Control.END)
    return rng.choice(codec().encode_text(" ".join(QUESTION.parts)))


def script_of(record: RolloutRecord) -> dict[tuple[int, ...], list[int]]:
    """What each agent of a played episode sampled, by its place in the episode."""
    places = {branch.thread: (0, number) for number, branch in enumerate(record.episode.branches)}
    script: dict[tuple[int, ...], list[int]] = {}
    for token in record.episode.sampled:
        script.setdefault(places.get(token.thread, (0,)), []).append(token.segment.tokens[token.offset])
    return script


def play(
    engine: Engine, environment: Any, mode: str = "octopus", seeds: Sequence[int] = (0,), **settings: Any
) -> list[RolloutRecord]:
    """Plays one task, and sees to it that nothing of it stays in the engine."""
    before = engine.held()
    rollouts = Rollouts(engine, codec(), MODES[mode], **settings)
    (records,) = rollouts.run([Task(name="toy", environment=environment, seeds=tuple(seeds))])
    assert engine.held() == before and not engine.graph.segments and not engine.graph.waits
    return list(records)
