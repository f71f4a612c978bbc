"""JSON from strangers: bounded in length and depth, no key twice, no NaN, every number one that fits."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NoReturn

from octopus.verify.inputs import Unreadable
from octopus.verify.readers.containers.source import opened, refuse_beyond

MAX_JSON_BYTES = 2 * 2**20
"""Of one document or one line. Python's objects take up to thirty times the room of their text."""

MAX_COUNT = 2**48


def read_json(path: Path) -> Any:
    """The one document of a file. Raises `Unreadable`."""
    with opened(path) as (file, size):
        if size > MAX_JSON_BYTES:
            raise Unreadable(f"the file has {size:,} bytes; a JSON document may have {MAX_JSON_BYTES:,}")
        return parse_json(file.read(MAX_JSON_BYTES), "the file")


def read_json_lines(path: Path, max_bytes: int) -> Iterator[tuple[int, dict[str, Any]]]:
    """Line number (from 1) and table of each line that is not empty.

    Raises:
        Unreadable: at the line at fault, or where the objects of all lines so far take more than `max_bytes`.
    """
    with opened(path) as (file, size):
        refuse_beyond(size, max_bytes, "the file")
        number = room = 0
        while line := file.readline(MAX_JSON_BYTES + 1):
            number += 1
            if len(line) > MAX_JSON_BYTES:
                raise Unreadable(f"line {number} has more than {MAX_JSON_BYTES:,} bytes")
            if not line.strip():
                continue
            value = parse_json(line, f"line {number}")
            room += _room(line)
            refuse_beyond(room, max_bytes, f"the file up to line {number}")
            if not isinstance(value, dict):
                raise Unreadable(f"line {number} is not a JSON object")
            yield number, value


def parse_json(data: bytes, what: str) -> Any:
    """The value that `data` (bounded by the caller) describes. Raises `Unreadable`, with `what` in the message."""
    try:
        return json.loads(data.decode("utf-8"), object_pairs_hook=_table, parse_constant=_no_constant)
    except RecursionError as error:
        raise Unreadable(f"{what} is nested too deeply") from error
    except ValueError as error:  # Also what is no UTF-8, and numbers of thousands of digits.
        reason = str(error).split(";")[0]
        raise Unreadable(f"{what} is not JSON that is accepted here: {reason}") from error


def is_count(value: object) -> bool:
    """Whether the value is an integer from 0 to 2**48; true and false are no integers."""
    return isinstance(value, int) and not isinstance(value, bool) and 0 <= value <= MAX_COUNT


def _room(text: bytes) -> int:
    """About how many bytes the values of a JSON text take in memory: 90 a container, 40 another value."""
    return len(text) + 90 * (text.count(b"[") + text.count(b"{")) + 40 * text.count(b",")


def _table(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    table = dict(pairs)
    if len(table) != len(pairs):
        raise ValueError("a key occurs twice in one object")
    return table


def _no_constant(name: str) -> NoReturn:
    raise ValueError(f"{name} is not JSON")
