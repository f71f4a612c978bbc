"""A pool of 60 % of the working set plays the same episodes as one without limits, through every rung of the ladder."""

from __future__ import annotations

import random
from collections.abc import Generator, Sequence

import pytest
from core.content import ContentEngine

from octopus.core.thread import Thread
from octopus.rollout.turns import Turns

EPISODES = 64
Ask = Generator[list[Thread], list[int], None]


class Episode:
    """A root that forks branches, which write, read each other and commit; the root reads them and goes on."""

    def __init__(self, engine: ContentEngine, seed: int) -> None:
        self.seed = seed
        self.engine = engine
        self.rng = random.Random(seed)
        self.made = 0
        self.text: list[tuple[int, ...]] = []
        self.play = self.playing()
        self.asked: list[Thread] = next(self.play)

    def named(self, thread: Thread) -> Thread:
        """Numbers of threads depend on who else plays, so keys are hashed from the place in the episode."""
        self.engine.names[thread.id] = (self.seed, self.made)
        self.made += 1
        return thread

    def write(self, threads: Sequence[Thread], count: int) -> Ask:
        for _ in range(count):
            tokens = yield list(threads)
            for thread, token in zip(threads, tokens, strict=True):
                self.engine.graph.append(thread, [token])

    def playing(self) -> Ask:
        graph, rng = self.engine.graph, self.rng
        root = self.named(graph.thread())
        graph.append(root, [rng.randrange(50) for _ in range(rng.randint(5, 12))])
        yield from self.write([root], rng.randint(1, 6))
        for _ in range(2):
            branches = [self.named(child) for child in graph.fork(root, rng.randint(2, 3))]
            wait = graph.wait_threads(root, branches)
            for number, branch in enumerate(branches):
                graph.append(branch, [number])
            yield from self.write(branches, rng.randint(3, 8))
            graph.rewind(branches[0], rng.randint(1, branches[0].own_tokens))
            graph.read_thread(branches[-1], branches[0])
            graph.append(branches[-1], [9])
            yield from self.write(branches[1:], rng.randint(2, 6))
            self.text += [tuple(branch.cursor.segment.tokens) for branch in branches]
            yield branches  # So that all is computed.
            for branch in branches:
                graph.commit(branch)
            assert wait.done
            for branch in branches:
                graph.read_thread(root, branch, last=rng.choice((None, 4)))
                graph.drop(branch)
            graph.append(root, [8])
            yield from self.write([root], rng.randint(3, 10))
        self.text.append(tuple(root.cursor.segment.tokens))
        graph.drop(root)


def play(engine: ContentEngine) -> tuple[list[list[tuple[int, ...]]], int]:
    """Plays all episodes, as many at a time as fit; returns what each says, and the most pages held at any time."""
    episodes = [Episode(engine, seed) for seed in range(EPISODES)]
    turns, most, ended = Turns(episodes, key=lambda episode: episode.seed), 0, set()
    while turns.active:
        with turns.parking():
            threads = [thread for episode in turns.active for thread in episode.asked]
            tokens = iter(engine.sample(*threads))
            stats = engine.graph.stats()
            most = max(most, stats.pages.used - stats.pages_cached)
            for episode in turns.active:
                try:
                    episode.asked = episode.play.send([next(tokens) for _ in episode.asked])
                except StopIteration:
                    ended.add(episode)
            turns.keep(lambda episode: episode not in ended)
    engine.graph.audit()
    return [episode.text for episode in episodes], most


@pytest.mark.parametrize("states", [False, True], ids=["attention", "hybrid"])
def test_a_pool_of_sixty_percent_says_the_same(states: bool) -> None:
    """Catches: any memory that is lost, stale, swapped or seen too far; a rung that is never reached; thrashing."""
    texts, most = play(ContentEngine(pages=20_000, states=20_000 if states else None, rate=None))
    tight = ContentEngine(
        pages=most * 6 // 10,
        states=220 if states else None,
        host_pages=most // 12,
        host_states=40 if states else 0,
        rate=1 / 16,
    )
    again, _ = play(tight)
    assert again == texts
    counters = tight.graph.stats().counters
    kept = counters.tokens_computed - counters.tokens_recomputed
    print(f"working set {most} pages; {counters}")
    for rung in ("evict", "offload", "preempt"):
        assert getattr(counters, f"{rung}_helped") > 0, rung
    assert min(counters.preempted_swapped, counters.preempted_recomputed, counters.refused) > 0
    assert counters.restores_done > 0 and counters.seals_broken == 0
    assert counters.tokens_computed <= 3 * kept
    tight.graph.trim()
    stats = tight.graph.stats()
    assert (stats.pages.used, stats.host_pages.used, stats.states.used, stats.host_states.used) == (0, 0, 0, 0)
