"""What a rollout leaves behind: the graph it wrote, who sampled which token, and the reward."""

from __future__ import annotations

from dataclasses import dataclass

from octopus.core.segment import Segment
from octopus.core.waits import WaitEdge


@dataclass(frozen=True, kw_only=True, slots=True)
class SampledToken:
    """A token that the policy chose, as it was chosen; given text and forced delimiters are not sampled.

    Attributes:
        segment: The segment that holds it.
        offset: Its place in that segment.
        log_probability: Natural log under the weights that sampled it, at temperature 1, which is the policy that is
            trained; None if not recorded.
        live: False if its thread rewound past it or was cancelled. Such tokens carry no loss term.
    """

    segment: Segment
    offset: int
    log_probability: float | None
    live: bool

    @property
    def thread(self) -> int:
        """Id of the thread that sampled it: the segment's writer."""
        return self.segment.writer


@dataclass(frozen=True, kw_only=True, slots=True)
class Branch:
    """A thread that worked for the root.

    Attributes:
        thread: Its id, which is the writer of its segments.
        place: Its place in the episode: (0, 2) is the third child of the root, which is (0,).
        documents: The ids of the documents that results showed to it, each once, in order.
        committed: The text that it committed, None if it ended without.
    """

    thread: int
    place: tuple[int, ...]
    documents: tuple[str, ...]
    committed: str | None


@dataclass(frozen=True, kw_only=True, slots=True)
class Episode:
    """One rollout.

    Example: a root of 4 given tokens forks a child that samples 2 and commits; the root reads the child, is given a
    delimiter of 1 and samples an answer of 3:

        segments  root (4)   child (2)   root after the read (1 + 3)
        sampled              0, 1        1, 2, 3

    Attributes:
        name: What it is called in logs and errors.
        segments: All segments of the episode, in the order of their creation.
        waits: Who waited for whom, as it was resolved.
        sampled: Every sampled token; those of one thread in the order of sampling.
        reward: What the episode earned as a whole.
        branches: The threads besides the root's.
    """

    name: str
    segments: tuple[Segment, ...]
    waits: tuple[WaitEdge, ...]
    sampled: tuple[SampledToken, ...]
    reward: float
    branches: tuple[Branch, ...] = ()
