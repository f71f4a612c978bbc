"""How a policy is spoken to and acts, in tokens: all that a play needs to know of it.

`Codec` is the dialect of policies that were trained here, `Chat` that of models with a chat template. Whatever a
dialect gives is given text: nothing that was sampled is ever encoded again.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

from octopus.rollout.actions import Action, Fault, Mistake
from octopus.rollout.control import Control

if TYPE_CHECKING:
    from octopus.rollout.environment import Environment
    from octopus.rollout.modes import Mode


class Turn(Protocol):
    """The tokens of one turn, as they are sampled.

    Attributes:
        tokens: Those sampled so far.
    """

    tokens: list[int]

    def take(self, token: int) -> Action | Mistake | Fault | None:
        """Adds a token; returns what the turn is as soon as that is known, None before."""


class Dialect(Protocol):
    """See above.

    Attributes:
        fork_takes: What a fork's argument is called: `a number`.
    """

    fork_takes: str

    @property
    def vocabulary(self) -> int:
        """Number of tokens."""

    def encode_text(self, text: str) -> list[int]:
        """The text's tokens, never a control token."""

    def decode_text(self, tokens: Sequence[int]) -> str:
        """The text of the tokens, control tokens left out."""

    def prompt(self, environment: Environment, mode: Mode) -> list[int]:
        """What a root is given before its first turn."""

    def again(self, environment: Environment, mode: Mode, turn: Sequence[int]) -> list[int]:
        """What a child is given that shares no KV with its parent, which forked in the turn of these tokens."""

    def turn(self, allowed: frozenset[Control], max_tokens: int) -> Turn:
        """A turn of at most `max_tokens` tokens whose action is one of `allowed`."""

    def result(self, text: str, *, ok: bool) -> list[int]:
        """What an agent is given after a turn that is answered with a text: a tool's, or an error's."""

    def tasks(self, words: str) -> list[str]:
        """The task of each child that a fork with these words asks for; none if it cannot be understood."""

    def child(self, index: int, count: int, task: str) -> list[int]:
        """What a child is given: it is number `index`, from 1, of `count`, and has this task."""

    def reading(self, sources: Sequence[tuple[int, bool]]) -> list[list[int]]:
        """What stands around mounts: one piece before each, one behind the last.

        Args:
            sources: Number of each source, at least one, and whether it committed; where it did not there is no mount.

        Returns:
            Every piece behind a mount has at least one token, which is the first that sees it.
        """

    def save(self, path: Path | str) -> None:
        """Writes the tokenizer as a `tokenizer.json`, what else it needs beside it."""

    def transformers(self) -> Any:
        """The tokenizer as the transformers library has it."""
