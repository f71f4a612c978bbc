"""What a policy does in a turn: one action token, its argument as text, `<|end|>`."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum

from octopus.rollout.codec import Control

TOOLS = {Control.SEARCH: "search", Control.OPEN: "open"}
"""The actions that call a tool, and the tool's name."""


class Fault(Enum):
    """Why a turn is not an action."""

    BAD_ACTION = "bad_action"
    """It did not begin with an action that is open to the thread, or had a control token in its argument."""
    TURN_TOKENS = "turn_tokens"
    """It was longer than a turn may be."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Action:
    """A complete turn.

    Attributes:
        kind: The action token.
        argument: The text tokens between it and `<|end|>`.
    """

    kind: Control
    argument: tuple[int, ...]


class Turn:
    """The tokens of one turn, as they are sampled."""

    def __init__(self, allowed: frozenset[Control], max_tokens: int) -> None:
        """Begins a turn of at most `max_tokens` tokens, `<|end|>` included, whose action is one of `allowed`."""
        self._allowed = allowed
        self._max_tokens = max_tokens
        self._tokens: list[int] = []

    def take(self, token: int) -> Action | Fault | None:
        """Adds a token; returns the action when it is complete, the fault when it cannot become one, else None."""
        self._tokens.append(token)
        if len(self._tokens) == 1:
            begins = token in self._allowed
        else:
            if token == Control.END:
                return Action(kind=Control(self._tokens[0]), argument=tuple(self._tokens[1:-1]))
            begins = token >= len(Control)
        if not begins:
            return Fault.BAD_ACTION
        return Fault.TURN_TOKENS if len(self._tokens) >= self._max_tokens else None
