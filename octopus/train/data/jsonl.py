"""Files with one JSON object a line, and errors that name the line."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from octopus.core.errors import ConfigError


def read_jsonl(path: Path) -> Iterator[tuple[str, dict[str, Any]]]:
    """The objects of a file, each with what to call its place in messages: `train.jsonl, line 3`. Skips empty lines.

    Raises:
        ConfigError: The file cannot be read, or a line is no JSON object.
    """
    try:
        lines = path.read_text(encoding="utf-8").split("\n")
    except OSError as error:
        raise ConfigError(f"{path}: cannot be read: {error.strerror}") from error
    except UnicodeDecodeError as error:
        raise ConfigError(f"{path}: not UTF-8: {error}") from error
    for number, line in enumerate(lines, start=1):
        if line.strip():
            place = f"{path}, line {number}"
            yield place, _parsed(line, place)


def _parsed(line: str, place: str) -> dict[str, Any]:
    try:
        value = json.loads(line)
    except (ValueError, RecursionError) as error:
        raise ConfigError(f"{place}: not JSON: {error}") from error
    if not isinstance(value, dict):
        raise ConfigError(f"{place}: expected an object, came {type(value).__name__}")
    return value
