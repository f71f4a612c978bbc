"""Records of rollouts: the episode as the trainer takes it, how it ended, and what happened in it."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any

from octopus.core.segment import Segment
from octopus.rollout.agents import Agent, Event
from octopus.rollout.episode import Branch, Episode, SampledToken
from octopus.rollout.play import Outcome, Play

SCHEMA_VERSION = 1


@dataclass(frozen=True, kw_only=True, slots=True)
class RolloutRecord:
    """One rollout, ended. It holds the episode's segments, though the graph may have forgotten them.

    Attributes:
        episode: What the trainer packs. Nothing of it was tokenised again.
        mode: The mode that played it.
        seed: Seed of its random draws.
        outcome: How it ended.
        answer: What the root answered, None if it did not.
        gold: The document of each part of the question.
        documents: Those that results showed to the root itself, which belong to no branch.
        events: What each agent did, in order: the root's events first, then those of each branch.
    """

    episode: Episode
    mode: str
    seed: int
    outcome: Outcome
    answer: str | None
    gold: tuple[str, ...]
    documents: tuple[str, ...]
    events: tuple[tuple[Event, ...], ...]

    @property
    def correct(self) -> bool:
        """Whether the answer was exactly right."""
        return self.episode.reward == 1.0


def record_of(play: Play, name: str, *, scored: bool = True) -> RolloutRecord:
    """The record of an episode that has ended. Make it before the episode is dropped.

    Unless it is `scored`, by the environment, its reward is 0 until a judge gives one.
    """
    if play.outcome is None:
        raise ValueError(f"episode {name} has not ended yet")
    agents = sorted(play.agents, key=lambda agent: agent.path)
    answer = play.answer if play.outcome == "answered" else None
    episode = Episode(
        name=name,
        segments=_segments(agents),
        waits=tuple(play.waits),
        sampled=tuple(token for agent in agents for token in _sampled(agent)),
        reward=play.environment.score(answer) if scored and answer is not None else 0.0,
        branches=tuple(_branch(agent) for agent in agents if agent.parent is not None),
    )
    return RolloutRecord(
        episode=episode,
        mode=play.mode.name,
        seed=play.seed,
        outcome=play.outcome,
        answer=answer,
        gold=play.environment.gold,
        documents=play.agents[0].documents,
        events=tuple(tuple(agent.events) for agent in agents),
    )


def as_json(record: RolloutRecord) -> dict[str, Any]:
    """The record in plain JSON values, one line of `episodes.jsonl`.

    Segments and threads are numbered within the episode, so the same rollout gives the same line whatever else was in
    the graph. A segment is `{parent: [segment, length] | null, position, thread, tokens, mounts}`; each mount is the
    list of its parts `[segment, start, stop, shift]`. A sampled token is `[segment, offset, log_probability, live]`, a
    wait `[waiter segment, length, awaited segment, length]`.
    """
    episode = record.episode
    numbers = {segment: number for number, segment in enumerate(episode.segments)}
    threads: dict[int, int] = {}
    for segment in episode.segments:
        threads.setdefault(segment.writer, len(threads))
    return {
        "schema_version": SCHEMA_VERSION,
        "name": episode.name,
        "mode": record.mode,
        "seed": record.seed,
        "outcome": record.outcome,
        "answer": record.answer,
        "reward": episode.reward,
        "gold": list(record.gold),
        "documents": list(record.documents),
        "segments": [_segment_json(segment, numbers, threads) for segment in episode.segments],
        "sampled": [[numbers[t.segment], t.offset, t.log_probability, t.live] for t in episode.sampled],
        "waits": [
            [numbers[edge.waiter.segment], edge.waiter.length, numbers[edge.awaited.segment], edge.awaited.length]
            for edge in episode.waits
        ],
        "branches": [
            {"thread": threads[b.thread], "documents": list(b.documents), "committed": b.committed}
            for b in episode.branches
        ],
        "events": [[asdict(event) for event in events] for events in record.events],
    }


def _segment_json(segment: Segment, numbers: dict[Segment, int], threads: dict[int, int]) -> dict[str, Any]:
    parent = segment.parent
    return {
        "parent": None if parent is None else [numbers[parent.segment], parent.length],
        "position": segment.start_position,
        "thread": threads[segment.writer],
        "tokens": segment.tokens,
        "mounts": [
            [[numbers[part.segment], part.start, part.stop, part.shift] for part in mount.parts]
            for mount in segment.mounts
        ],
    }


def _segments(agents: list[Agent]) -> tuple[Segment, ...]:
    """Every segment that an agent stands on or has sampled on, and all that those continue or mount."""
    cursors = [agent.thread.cursor for agent in agents]
    cursors += [sample.cursor for agent in agents for sample in agent.samples]
    stack = list({cursor.segment for cursor in cursors})
    found = set(stack)
    while stack:
        segment = stack.pop()
        nearby = [part.segment for mount in segment.mounts for part in mount.parts]
        nearby += [] if segment.parent is None else [segment.parent.segment]
        for other in set(nearby) - found:
            found.add(other)
            stack.append(other)
    return tuple(sorted(found, key=lambda segment: segment.index))


def _sampled(agent: Agent) -> list[SampledToken]:
    return [
        SampledToken(
            segment=sample.cursor.segment,
            offset=sample.cursor.length - 1,
            log_probability=sample.log_probability,
            live=sample.live,
        )
        for sample in agent.samples
    ]


def _branch(agent: Agent) -> Branch:
    committed = None if agent.commit is None else agent.commit.words
    return Branch(thread=agent.thread.id, place=agent.path, documents=agent.documents, committed=committed)
