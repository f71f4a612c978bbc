"""What a policy does in a turn."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from enum import Enum

from octopus.rollout.control import Control

TOOLS = {Control.SEARCH: "search", Control.OPEN: "open"}
"""The actions that call a tool, and the tool's name."""


class Fault(Enum):
    """Why a turn is not an action, and ends its agent."""

    BAD_ACTION = "bad_action"
    """It did not begin with an action that is open to the thread, or had a control token in its argument."""
    TURN_TOKENS = "turn_tokens"
    """It was longer than a turn may be."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Mistake:
    """A complete turn that is no action, but may be answered with why.

    Attributes:
        words: What was said.
        why: What is wrong with it.
    """

    words: str
    why: str


@dataclass(frozen=True, kw_only=True, slots=True)
class Action:
    """A complete turn.

    Attributes:
        kind: What is done.
        words: Its argument as text.
        argument: The turn's tokens that hold the words.
        behind: How many of the turn's tokens follow these.
    """

    kind: Control
    words: str
    argument: tuple[int, ...]
    behind: int = 1


class ControlTurn:
    """The tokens of one turn, as they are sampled: one action token, its argument as text, `<|end|>`.

    Attributes:
        tokens: Those sampled so far.
    """

    def __init__(
        self, allowed: frozenset[Control], max_tokens: int, *, decode: Callable[[Sequence[int]], str]
    ) -> None:
        """Begins a turn of at most `max_tokens` tokens, `<|end|>` included, whose action is one of `allowed`."""
        self.tokens: list[int] = []
        self._allowed = allowed
        self._max_tokens = max_tokens
        self._decode = decode

    def take(self, token: int) -> Action | Mistake | Fault | None:
        """Adds a token; returns the action when it is complete, the fault when it cannot become one, else None."""
        self.tokens.append(token)
        if len(self.tokens) == 1:
            begins = token in self._allowed
        else:
            if token == Control.END:
                argument = tuple(self.tokens[1:-1])
                words = self._decode(argument).strip()
                return Action(kind=Control(self.tokens[0]), words=words, argument=argument)
            begins = token >= len(Control)
        if not begins:
            return Fault.BAD_ACTION
        return Fault.TURN_TOKENS if len(self.tokens) >= self._max_tokens else None
