"""Scripted rollouts: what a policy might have done, written down beforehand.

Each rollout of a script goes through the whole life of a graph: a root prompt; one branch for each document, forked
from the root, given its document and "sampling" a note; the last branch writes a first try, rewinds and tries again;
the root waits until all have committed, reads them where they lie, is given a forced delimiter and "samples" an answer.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from octopus.core.cursor import Cursor
from octopus.core.graph import Graph
from octopus.core.thread import Thread
from octopus.rollout.episode import Episode, SampledToken

Encode = Callable[[str], list[int]]


@dataclass(frozen=True, kw_only=True)
class ScriptedRollout:
    """What one rollout of a script samples."""

    notes: tuple[str, ...]
    """The note of each branch, in the order of the documents."""
    first_try: str
    """What the last branch writes before it rewinds and writes its note."""
    answer: str
    """What the root answers after it has read the branches."""


@dataclass(frozen=True, kw_only=True)
class Script:
    """A task, and the rollouts that were scripted for it."""

    name: str
    prompt: str
    """The root's text: the question."""
    documents: tuple[str, ...]
    """One branch is forked for each, and given it."""
    delimiter: str
    """Forced after the root has read the branches, and never trained on."""
    right_answer: str
    """The answer that earns 1; every other earns 0."""
    rollouts: tuple[ScriptedRollout, ...]


def scripted_group(script: Script, encode: Encode) -> tuple[Episode, ...]:
    """Plays all rollouts of a script.

    Args:
        script: The task and its rollouts.
        encode: Token ids of a text, no special tokens added. Every text is encoded once, alone.

    Returns:
        One episode for each rollout, rewards 1 and 0, no log-probability recorded.
    """
    return tuple(
        _Player(encode).play(f"{script.name}/{number}", script, rollout)
        for number, rollout in enumerate(script.rollouts)
    )


class _Player:
    """Plays one rollout on a graph of its own, which only records."""

    def __init__(self, encode: Encode) -> None:
        self.encode = encode
        self.graph = Graph()
        self.sampled: list[tuple[Cursor, bool]] = []  # the place of each sampled token, and whether it is live

    def play(self, name: str, script: Script, rollout: ScriptedRollout) -> Episode:
        root = self.graph.thread()
        self.graph.append(root, self.encode(script.prompt))
        branches = self.graph.fork(root, len(script.documents))
        self.graph.wait_threads(root, branches)
        for branch, document, note in zip(branches, script.documents, rollout.notes, strict=True):
            self.graph.append(branch, self.encode(document))
            if branch is branches[-1]:
                mark = self.graph.mark(branch)
                self.sample(branch, rollout.first_try, live=False)
                self.graph.rewind(branch, mark)
            self.sample(branch, note)
            self.graph.commit(branch)
        for branch in branches:
            self.graph.read_thread(root, branch)
        self.graph.append(root, self.encode(script.delimiter))
        self.sample(root, rollout.answer)
        self.graph.commit(root)
        return Episode(
            name=name,
            segments=tuple(self.graph.segments),
            waits=tuple(self.graph.waits),
            sampled=tuple(
                SampledToken(segment=place.segment, offset=place.length - 1, log_probability=None, live=live)
                for place, live in self.sampled
            ),
            reward=float(rollout.answer == script.right_answer),
        )

    def sample(self, thread: Thread, text: str, *, live: bool = True) -> None:
        """Appends a text token by token, as a sampler would."""
        for token in self.encode(text):
            self.graph.append(thread, [token])
            self.sampled.append((thread.cursor, live))
