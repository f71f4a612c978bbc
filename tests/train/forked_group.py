"""A small group of episodes whose branches may be created in any order, as a sampler would have recorded them."""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import replace

from tiny_models import VOCABULARY

from octopus.core.graph import Graph
from octopus.rollout.episode import Episode, SampledToken
from octopus.train.packing import RatedEpisode

ROLES = 3
WORTH = (1.0, -0.75, 0.5)
Tokens = dict[str, list[int]]


def texts(episode: int) -> Tokens:
    """What each thread of an episode samples; the prompt is the same for all."""
    rng = random.Random(f"texts {episode}")
    lengths = {"0": 2 + episode, "1": 5, "2": 3, "root": 4, "lost": 2}
    return {name: [rng.randrange(VOCABULARY) for _ in range(length)] for name, length in lengths.items()}


def recorded(episode: int, name: str, place: int) -> float:
    """A log-probability for each sampled token, whoever comes first; spread enough for ratios to be clipped."""
    return -3.0 - random.Random(f"recorded {episode} {name} {place}").random()


class _Writer:
    def __init__(self, episode: int) -> None:
        self.episode = episode
        self.graph = Graph()
        self.sampled: list[SampledToken] = []

    def sample(self, thread, name: str, *, live: bool = True) -> None:
        for place, token in enumerate(texts(self.episode)[name]):
            self.graph.append(thread, [token])
            cursor = thread.cursor
            self.sampled.append(
                SampledToken(
                    segment=cursor.segment,
                    offset=cursor.length - 1,
                    log_probability=recorded(self.episode, name, place),
                    live=live,
                )
            )


def episode(number: int, order: Sequence[int] = range(ROLES)) -> Episode:
    """One episode: the root forks a child for each role, in any order, reads them in the order of roles, and answers.

    The child of role 0 rewinds past what it sampled first. The child of role 1 samples, is given a token, and goes on.
    """
    writer = _Writer(number)
    graph = writer.graph
    root = graph.thread()
    graph.append(root, [3, 1, 4, 1, 5])
    children = dict(zip(order, graph.fork(root, ROLES), strict=True))
    for role in order:
        child = children[role]
        graph.append(child, [10 + role])
        if role == 0:
            mark = graph.mark(child)
            writer.sample(child, "lost", live=False)
            graph.rewind(child, mark)
        writer.sample(child, str(role))
        if role == 1:
            graph.append(child, [9, 9, 9])
            writer.sample(child, "2")
        graph.commit(child)
    for role in range(ROLES):
        graph.read_thread(root, children[role])
    graph.append(root, [6])
    writer.sample(root, "root")
    return Episode(
        name=str(number),
        segments=tuple(graph.segments),
        waits=tuple(graph.waits),
        sampled=tuple(writer.sampled),
        reward=0.0,
    )


def rated(number: int, order: Sequence[int] = range(ROLES)) -> RatedEpisode:
    """The episode with an advantage for each thread: branches have some of their own."""
    one = episode(number, order)
    root = one.sampled[-1].thread
    place = {role: one.segments[0].writer + 1 + index for index, role in enumerate(order)}
    worth = {place[role]: WORTH[number] + 0.1 * role for role in range(ROLES)} | {root: WORTH[number]}
    return RatedEpisode(episode=one, advantages=tuple(worth[token.thread] for token in one.sampled))


def poisoned(one: RatedEpisode) -> RatedEpisode:
    """NaN wherever a token is masked: what was recorded of it, and its advantage."""
    tokens = one.episode.sampled
    masked = tuple(t if t.live else replace(t, log_probability=float("nan")) for t in tokens)
    advantages = (a if t.live else float("nan") for t, a in zip(tokens, one.advantages, strict=True))
    return RatedEpisode(episode=replace(one.episode, sampled=masked), advantages=tuple(advantages))
