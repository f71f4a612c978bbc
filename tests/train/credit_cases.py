"""Episodes made by hand for tests of credit: a graph, who answered at its end, an environment without retrieval."""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from typing import Any

from octopus.core.graph import Graph
from octopus.core.thread import Thread
from octopus.rollout.codec import Control, framed
from octopus.rollout.episode import Branch, Episode, SampledToken
from octopus.rollout.records import RolloutRecord
from octopus.train.credit.world import Played


class Scored:
    """An environment that scores answers by a function, and knows the tokens of a reference answer or none."""

    gold = ()

    def __init__(self, score: Callable[[str], float] = lambda answer: 1.0, reference: list[int] | None = None) -> None:
        self._score = score
        self._reference = reference

    def prompt(self, codec: Any) -> list[int]:
        return framed(Control.QUESTION)

    def tools(self, turn: int) -> dict[str, Any]:
        return {}

    def score(self, answer: str, *, lost: Collection[int] = ()) -> float:
        return self._score(answer)

    def reference(self, codec: Any) -> list[int] | None:
        return self._reference


def asked() -> Any:
    """A codec that nobody asks for anything."""
    return object()


def played_of(
    graph: Graph,
    answering: Thread,
    *,
    answer_tokens: int,
    environment: Any = None,
    reward: float = 1.0,
    branches: Sequence[Thread] = (),
) -> Played:
    """The graph as an episode whose answer `answering` has just given. Who wrote nothing of its line is a branch."""
    line, above = set(), answering.cursor
    while above is not None:
        line.add(above.segment.writer)
        above = above.segment.parent
    threads = branches or [thread for thread in graph.threads if thread.id not in line | {answering.id}]
    segment, stop = answering.cursor
    episode = Episode(
        name="made",
        segments=tuple(graph.segments),
        waits=tuple(graph.waits),
        sampled=tuple(
            SampledToken(segment=segment, offset=offset, log_probability=-1.0, live=True)
            for offset in range(stop - answer_tokens, stop)
        ),
        reward=reward,
        branches=tuple(
            Branch(thread=thread.id, place=thread.path, documents=(), committed=None) for thread in threads
        ),
    )
    record = RolloutRecord(
        episode=episode,
        mode="octopus",
        seed=0,
        outcome="answered",
        answer="made",
        gold=(),
        documents=(),
        events=(),
    )
    return Played(environment=environment or Scored(), record=record)


def played_with(branches: int) -> Played:
    """A root that forks so many branches of one token each and answers, having read nobody."""
    graph = Graph()
    root = graph.thread()
    graph.append(root, [1, 2])
    for branch in graph.fork(root, branches) if branches else ():
        graph.append(branch, [3])
    graph.append(root, [4])
    return played_of(graph, root, answer_tokens=1)


def siblings(*, reference: list[int] | None = None, reward: float = 1.0) -> Played:
    """Two branches of a root, the second of which has read the first; the root reads both, and not a third."""
    graph = Graph()
    root = graph.thread()
    graph.append(root, [1, 2, 0])
    first, second, unread = graph.fork(root, 3)
    graph.append(first, [4, 5])
    graph.append(second, [6])
    graph.read_thread(second, first)
    graph.append(second, [7, 8])
    graph.append(unread, [9])
    for branch in (first, second):
        graph.read_thread(root, branch)
    graph.append(root, [10, 11, 12, 13])
    environment = Scored(reference=reference)
    return played_of(graph, root, answer_tokens=2, environment=environment, reward=reward)
