"""One message of a model, as it is sampled, and the action that it comes to."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence

from octopus.rollout.actions import Action, Fault, Mistake
from octopus.rollout.chat.parsing import Said, read_message
from octopus.rollout.chat.schemas import CHAT_TOOLS, ChatTool
from octopus.rollout.control import Control

_BY_NAME = {tool.name: (control, tool) for control, tool in CHAT_TOOLS.items()}


class ChatTurn:
    """A message: thinking, words, and one tool call or none. Without a call its words answer, or commit.

    Attributes:
        tokens: Those sampled so far.
    """

    def __init__(
        self,
        allowed: frozenset[Control],
        max_tokens: int,
        *,
        end: int,
        strange: Callable[[int], bool],
        decode: Callable[[Sequence[int]], str],
        thinking: bool,
    ) -> None:
        """Begins a message.

        Args:
            allowed: The actions that are open to the agent.
            max_tokens: Most tokens, the mark that ends it included.
            end: That mark.
            strange: Whether a token must not stand in a message: another mark, or none of the tokenizer's.
            decode: The text of tokens, marks spelled out.
            thinking: Whether it begins within the thinking.
        """
        self.tokens: list[int] = []
        self._allowed = allowed
        self._max_tokens = max_tokens
        self._end = end
        self._strange = strange
        self._decode = decode
        self._thinking = thinking

    def take(self, token: int) -> Action | Mistake | Fault | None:
        """Adds a token; returns what the message is when it is complete."""
        self.tokens.append(token)
        if token == self._end:
            return self._whole()
        if self._strange(token):
            return Fault.BAD_ACTION
        return Fault.TURN_TOKENS if len(self.tokens) >= self._max_tokens else None

    def _whole(self) -> Action | Mistake:
        text = self._decode(self.tokens[:-1])
        try:
            said = read_message(text, thinking=self._thinking)
            kind, words = self._action(said, text)
        except ValueError as error:
            return Mistake(words=text, why=str(error))
        start, stop = self._place(text, said)
        return Action(
            kind=kind, words=words, argument=tuple(self.tokens[start:stop]), behind=len(self.tokens) - stop
        )

    def _action(self, said: Said, text: str) -> tuple[Control, str]:
        """What is done, and its words. Raises ValueError."""
        if said.name is None:
            closing = [kind for kind in (Control.ANSWER, Control.COMMIT) if kind in self._allowed]
            return closing[0], text[said.start : said.stop]
        kind, tool = _BY_NAME.get(said.name, (None, None))
        if kind is None or tool is None or kind not in self._allowed:
            names = ", ".join(name for name, (kind, _) in _BY_NAME.items() if kind in self._allowed)
            raise ValueError(f"there is no tool {said.name}; there are {names}")
        if list(said.arguments) != [tool.argument]:
            raise ValueError(f"{tool.name} takes {tool.argument} and nothing else")
        return kind, tool.words(_value(said, tool))

    def _place(self, text: str, said: Said) -> tuple[int, int]:
        """The fewest tokens that hold the words."""
        decoded = [self._decode(self.tokens[:count]) for count in range(len(self.tokens))]
        start = max(n for n, before in enumerate(decoded) if text[: said.start].startswith(before))
        stop = min(n for n, until in enumerate(decoded) if until.startswith(text[: said.stop]))
        return start, max(start, stop)


def _value(said: Said, tool: ChatTool) -> object:
    """The argument's value; in tags, numbers and lists are written as JSON. Raises ValueError."""
    value = said.arguments[tool.argument]
    if not said.tags or tool.kind == "text":
        return value
    try:
        return json.loads(value)
    except RecursionError as error:
        raise ValueError(f"{tool.argument} is nested too deeply") from error
