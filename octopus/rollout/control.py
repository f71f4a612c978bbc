"""The actions of a policy and the marks that stand around what it is given, as the codec's first tokens."""

from __future__ import annotations

from collections.abc import Sequence
from enum import IntEnum


class Control(IntEnum):
    """The control tokens; the value is the token id.

    `END` closes whatever another one opened. `QUESTION`, `PART`, `CHILD`, `RESULT` and `ERROR` are given to the policy;
    the others are the actions that it may take.
    """

    END = 0
    QUESTION = 1
    PART = 2
    CHILD = 3
    RESULT = 4
    ERROR = 5
    FORK = 6
    SEARCH = 7
    OPEN = 8
    READ = 9
    WAIT = 10
    REWIND = 11
    COMMIT = 12
    ANSWER = 13

    @property
    def spelling(self) -> str:
        """As people see it: `<|end|>`."""
        return f"<|{self.name.lower()}|>"


def framed(control: Control, tokens: Sequence[int] = ()) -> list[int]:
    """`<|control|> tokens <|end|>`."""
    return [int(control), *tokens, int(Control.END)]
