"""Rows with a `prompt`, as the Hugging Face libraries have them.

    {"prompt": "What is 2 + 3?", "answer": "5"}
    {"prompt": [{"role": "system", "content": "Be brief."}, {"role": "user", "content": "2 + 3?"}], "answer": "5"}

Every other column is what reward functions are given.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from octopus.core.errors import ConfigError
from octopus.rollout.environment import Message
from octopus.train.data.jsonl import read_jsonl

PROMPT = "prompt"
RESERVED = frozenset({"prompts", "completions", "completion_ids"})
"""What reward functions are given besides the columns."""
ROLES = ("system", "user", "assistant")


@dataclass(frozen=True, kw_only=True, slots=True)
class Row:
    """One prompt.

    Attributes:
        name: Where it stands, for logs and errors.
        prompt: A text, or the messages of a chat, as it was given.
        columns: The other columns; the same names in every row, None where a row has no such value.
    """

    name: str
    prompt: str | tuple[Message, ...]
    columns: Mapping[str, Any]

    @property
    def messages(self) -> list[Message]:
        """The prompt as messages; a text is a user's."""
        if isinstance(self.prompt, str):
            return [{"role": "user", "content": self.prompt}]
        return list(self.prompt)

    @property
    def text(self) -> str:
        """The prompt as one text."""
        return "\n".join(message["content"] for message in self.messages)


def read_rows(path: Path) -> list[Row]:
    """The rows of a JSONL file.

    Raises:
        ConfigError: A line is no row, or there is none; the message names the line.
    """
    return _rows(read_jsonl(path), source=str(path))


def rows_of(dataset: Iterable[Mapping[str, Any]], *, name: str = "rows") -> list[Row]:
    """The rows of a `datasets.Dataset`, or of anything else that yields mappings.

    Raises:
        ConfigError: An item is no row, or there is none; the message names its number, from 0.
    """
    return _rows(((f"{name}, row {number}", item) for number, item in enumerate(dataset)), source=name)


def _rows(items: Iterable[tuple[str, Mapping[str, Any]]], *, source: str) -> list[Row]:
    found = [(place, _prompt(item, place), item) for place, item in items]
    if not found:
        raise ConfigError(f"{source}: expected at least one row with a {PROMPT!r}, came none")
    names = dict.fromkeys(key for _, _, item in found for key in item if key != PROMPT)
    taken = sorted(RESERVED.intersection(names))
    if taken:
        raise ConfigError(f"{source}: no column can be called {taken[0]!r}: reward functions get that from rollouts")
    return [
        Row(name=place, prompt=prompt, columns={key: item.get(key) for key in names})
        for place, prompt, item in found
    ]


def _prompt(item: Mapping[str, Any], place: str) -> str | tuple[Message, ...]:
    prompt = item.get(PROMPT)
    if isinstance(prompt, str) and prompt:
        return prompt
    if not isinstance(prompt, list) or not prompt:
        came = "no such column" if PROMPT not in item else repr(prompt)[:60]
        raise ConfigError(f"{place}: {PROMPT!r}: expected a text or a list of messages, not empty, came {came}")
    for number, message in enumerate(prompt):
        if not isinstance(message, dict) or not all(isinstance(message.get(key), str) for key in ("role", "content")):
            raise ConfigError(
                f'{place}: {PROMPT}[{number}]: expected {{"role": text, "content": text}}, came {message!r:.80}'
            )
        if message["role"] not in ROLES:
            raise ConfigError(
                f"{place}: {PROMPT}[{number}]: expected a role of {', '.join(ROLES)}, came {message['role']!r}"
            )
    if prompt[-1]["role"] != "user":
        last = prompt[-1]["role"]
        raise ConfigError(f"{place}: {PROMPT!r}: expected a last message of the user's, came one of {last}")
    return tuple({"role": message["role"], "content": message["content"]} for message in prompt)
