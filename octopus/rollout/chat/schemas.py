"""The tools of a chat: what each action is called, what it takes, and how it is described to the model."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import Any, Literal

from octopus.rollout.control import Control

Kind = Literal["text", "number", "numbers", "texts"]

_TYPES: Mapping[Kind, dict[str, Any]] = {
    "text": {"type": "string"},
    "number": {"type": "integer"},
    "numbers": {"type": "array", "items": {"type": "integer"}},
    "texts": {"type": "array", "items": {"type": "string"}},
}


@dataclass(frozen=True, kw_only=True, slots=True)
class ChatTool:
    """An action as a tool of one argument.

    Attributes:
        name: As the model calls it.
        argument: Name of its argument.
        kind: What the argument is.
        does: What it does, for the model.
    """

    name: str
    argument: str
    kind: Kind
    does: str

    @property
    def schema(self) -> dict[str, Any]:
        """As chat templates take it."""
        parameters = {
            "type": "object",
            "properties": {self.argument: _TYPES[self.kind]},
            "required": [self.argument],
        }
        return {
            "type": "function",
            "function": {"name": self.name, "description": self.does, "parameters": parameters},
        }

    def words(self, value: object) -> str:
        """The argument as an action has it. Raises ValueError if it is not what the tool takes."""
        if self.kind == "number" and isinstance(value, int) and not isinstance(value, bool):
            return str(value)
        if self.kind == "text" and isinstance(value, str):
            return value.strip()
        if isinstance(value, list) and value:
            if self.kind == "texts" and all(isinstance(item, str) for item in value):
                return "\n".join(" ".join(item.split()) for item in value)
            if self.kind == "numbers" and all(type(item) is int for item in value):
                return " ".join(map(str, value))
        raise ValueError(f"{self.name} takes {self.argument}, {_NAMES[self.kind]}")


_NAMES: Mapping[Kind, str] = {
    "text": "a string",
    "number": "a whole number",
    "numbers": "a list of whole numbers",
    "texts": "a list of strings",
}

CHAT_TOOLS: Mapping[Control, ChatTool] = {
    Control.SEARCH: ChatTool(
        name="search", argument="query", kind="text", does="Finds documents that fit the words of a query."
    ),
    Control.OPEN: ChatTool(
        name="get_document", argument="docid", kind="text", does="Shows the document of this id, from its beginning."
    ),
    Control.FORK: ChatTool(
        name="fork",
        argument="tasks",
        kind="texts",
        does="Starts one thread for each task. The threads know all that you know and work side by side. "
        "Returns what they committed when all have ended.",
    ),
    Control.READ: ChatTool(
        name="read_thread",
        argument="thread",
        kind="number",
        does="Waits until another thread has ended, given by its number, and returns what it committed.",
    ),
    Control.WAIT: ChatTool(
        name="wait_threads",
        argument="threads",
        kind="numbers",
        does="Waits until other threads have ended, and returns how.",
    ),
    Control.REWIND: ChatTool(
        name="rewind",
        argument="turns",
        kind="number",
        does="Takes back so many of your last turns, and what came back in them: they are forgotten.",
    ),
    Control.COMMIT: ChatTool(
        name="commit", argument="text", kind="text", does="Ends a thread that was forked, with its result."
    ),
    Control.ANSWER: ChatTool(
        name="answer", argument="text", kind="text", does="Ends the whole work with the answer to the user."
    ),
}


def schemas(actions: Collection[Control]) -> list[dict[str, Any]]:
    """The tools of these actions, in the table's order."""
    return [tool.schema for action, tool in CHAT_TOOLS.items() if action in actions]
