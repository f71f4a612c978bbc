"""The threads of one episode, as those who take turns."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from enum import Enum

from octopus.core.cursor import Cursor
from octopus.core.thread import Thread
from octopus.core.waits import Wait
from octopus.rollout.actions import Action
from octopus.rollout.dialect import Turn
from octopus.rollout.tools import Tool


class State(Enum):
    """What an agent needs to go on."""

    READY = "ready"
    """A token."""
    CALLING = "calling"
    """What comes back of a tool."""
    COMMITTING = "committing"
    """The KV of its last tokens."""
    WAITING = "waiting"
    """That other agents end."""
    ENDED = "ended"
    """Nothing any more."""


@dataclass(frozen=True, kw_only=True, slots=True)
class AgentLimits:
    """What agents may take. Sampled tokens are meant; those of rewound turns count.

    Attributes:
        turn_tokens: Most tokens of a turn, `<|end|>` included.
        thread_tokens: Most tokens of an agent.
        turns: Most turns of an agent.
        fan_out: Most children of one fork.
        depth: Most forks above an agent.
    """

    turn_tokens: int = 64
    thread_tokens: int = 256
    turns: int = 12
    fan_out: int = 8
    depth: int = 1

    def __post_init__(self) -> None:
        """Raises ValueError unless an agent may take a turn."""
        if min(self.turn_tokens, self.thread_tokens, self.turns) < 1:
            raise ValueError(f"an agent needs at least one turn of one token, got {self}")


@dataclass(kw_only=True, slots=True)
class Sample:
    """One sampled token: the place right after it. `live` becomes False when the agent rewinds past it."""

    cursor: Cursor
    log_probability: float | None
    live: bool = True


@dataclass(frozen=True, kw_only=True, slots=True)
class Event:
    """Something that an agent did, or that ended it.

    Attributes:
        kind: The action's name, or `failed`.
        argument: What the agent said, decoded.
        ok: Whether it was done.
        result: What came back, or why it failed.
        documents: The documents that the result showed.
        attempts: How often the tool was tried.
    """

    kind: str
    argument: str
    ok: bool = True
    result: str = ""
    documents: tuple[str, ...] = ()
    attempts: int = 0


@dataclass(kw_only=True, slots=True)
class TurnNote:
    """What is remembered of a turn.

    Attributes:
        start: The thread's own tokens at which it began.
        forked: Whether it forked.
        result: The text that came back in it; None if none did.
        documents: The documents that this text showed.
    """

    start: int
    forked: bool = False
    result: str | None = None
    documents: tuple[str, ...] = ()


@dataclass(kw_only=True, slots=True, eq=False)
class Agent:
    """One thread of an episode.

    Attributes:
        path: Its place in the episode: the root's is (0,), its third child's is (0, 2). Keys its random draws.
        index: Its number among those that one action forked, from 1; 0 for the root.
        parent: Who forked it.
        thread: Its thread in the graph.
        state: What it needs to go on.
        turn: The turn it is in.
        notes: Its turns, without those that it took back; the present one last.
        samples: Every token it sampled, in order.
        request: The tool it calls, its name, and the words it calls it with.
        wait: What it waits on.
        awaited: Whom it waits for.
        asked: The words of a wait that is answered with how they ended; None where it sees what they committed.
        commit: The turn in which it committed.
        failure: Why it ended without committing.
        events: What it did, in order.
    """

    path: tuple[int, ...]
    index: int
    parent: Agent | None
    thread: Thread
    state: State = State.READY
    turn: Turn
    notes: list[TurnNote] = field(default_factory=list)
    samples: list[Sample] = field(default_factory=list)
    request: tuple[Tool, str, str] | None = None
    wait: Wait | None = None
    awaited: Sequence[Agent] = ()
    asked: str | None = None
    commit: Action | None = None
    failure: str | None = None
    events: list[Event] = field(default_factory=list)

    @property
    def depth(self) -> int:
        """Number of forks above it."""
        return len(self.path) - 1

    @property
    def committed(self) -> tuple[int, ...] | None:
        """The tokens that it committed."""
        return None if self.commit is None else self.commit.argument

    @property
    def documents(self) -> tuple[str, ...]:
        """The documents that results showed to it, each once, in order."""
        return tuple(dict.fromkeys(document for note in self.notes for document in note.documents))

    @property
    def results(self) -> list[str]:
        """The texts that came back to it, in order."""
        return [note.result for note in self.notes if note.result is not None]
