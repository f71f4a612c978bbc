"""What rollouts took, and what they would have taken without sharing. Pure functions of what was recorded."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

from octopus.rollout.episode import Episode
from octopus.rollout.records import RolloutRecord
from octopus.train.packing import path_tokens


@dataclass(frozen=True, kw_only=True, slots=True)
class Footprint:
    """Sizes of rollouts.

    Attributes:
        unique_tokens: Tokens of all segments, what is shared once.
        path_tokens: See `packing.path_tokens`.
        pages_held: KV pages that hold all of it at once.
        pages_copied: KV pages if every thread had its own copy of all that it sees.
    """

    unique_tokens: int
    path_tokens: int
    pages_held: int
    pages_copied: int


def footprint(episodes: Sequence[Episode], *, page_size: int) -> Footprint:
    """Measures episodes, with pages of `page_size` tokens."""
    segments = list(dict.fromkeys(segment for episode in episodes for segment in episode.segments))
    return Footprint(
        unique_tokens=sum(len(segment.tokens) for segment in segments),
        path_tokens=path_tokens(episodes),
        pages_held=sum(_pages(len(segment.tokens), page_size) for segment in segments),
        pages_copied=sum(_pages(end, page_size) for episode in episodes for end in _thread_ends(episode)),
    )


def primitives(records: Sequence[RolloutRecord]) -> dict[str, int]:
    """How often each primitive of the graph was used. A wait is counted once, however many were awaited."""
    used: Counter[str] = Counter(fork=0, read_thread=0, wait_threads=0, rewind=0, commit=0)
    for record in records:
        episode = record.episode
        done = Counter(event.kind for events in record.events for event in events if event.ok)
        used["fork"] += done["fork"]
        used["rewind"] += done["rewind"]
        used["commit"] += done["commit"]
        used["wait_threads"] += len({edge.order for edge in episode.waits})
        used["read_thread"] += sum(len(segment.mounts) for segment in episode.segments)
    return dict(used)


def _thread_ends(episode: Episode) -> list[int]:
    """For each thread that sampled anything the number of tokens that it saw at its end."""
    samplers = {token.thread for token in episode.sampled}
    ends: dict[int, int] = {}
    for segment in episode.segments:
        if segment.writer in samplers:
            end = segment.start_position + len(segment.tokens)
            ends[segment.writer] = max(end, ends.get(segment.writer, 0))
    return list(ends.values())


def _pages(tokens: int, page_size: int) -> int:
    return -(-tokens // page_size)
