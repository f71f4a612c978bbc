"""Episodes as text: one JSON object a line, the set-up first. What fails is saved so, and replayed from it."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import asdict
from pathlib import Path
from typing import Any

from fuzz.episodes import Episode, carry_out
from fuzz.operations import Operation
from fuzz.world import Setup

SCHEMA_VERSION = 1
MOST_BYTES = 4_000_000
CORPUS = Path(__file__).parent / "corpus"


def encode(episode: Episode) -> str:
    """JSON lines: the set-up, then one operation a line."""
    header = {"kind": "setup", "schema_version": SCHEMA_VERSION, **asdict(episode.setup)}
    lines: list[dict[str, Any]] = [header]
    lines += [{"kind": operation.kind, **operation.arguments} for operation in episode.operations]
    return "".join(json.dumps(line) + "\n" for line in lines)


def decode(text: str) -> Episode:
    """The episode of such lines. Raises ValueError for anything else."""
    if len(text) > MOST_BYTES:
        raise ValueError(f"an episode has at most {MOST_BYTES} bytes, got {len(text)}")
    lines = [json.loads(line) for line in text.splitlines() if line.strip()]
    if not lines or not all(isinstance(line, dict) and isinstance(line.get("kind"), str) for line in lines):
        raise ValueError("an episode is JSON objects, one a line, each with a `kind`")
    header, *rest = lines
    if header.pop("kind") != "setup" or header.pop("schema_version", None) != SCHEMA_VERSION:
        raise ValueError(f"the first line must be a set-up of schema version {SCHEMA_VERSION}")
    if set(header) - set(asdict(Setup())):
        raise ValueError(f"a set-up has no {', '.join(sorted(set(header) - set(asdict(Setup()))))}")
    operations = [Operation(kind=line.pop("kind"), arguments=line) for line in rest]
    numbers = [*header.values(), *(value for operation in operations for value in operation.arguments.values())]
    if not all(type(number) is int for number in numbers):
        raise ValueError("the fields of set-ups and the arguments of operations are integers")
    return Episode(setup=Setup(**header), operations=tuple(operations))


def save(episode: Episode, name: str, *, folder: Path = CORPUS) -> Path:
    """Writes a case to replay; returns where."""
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / f"{name}.jsonl"
    path.write_text(encode(episode))
    return path


def replay(path: Path) -> None:
    """Does a saved case again. Raises what it finds wrong."""
    carry_out(decode(path.read_text()))


def shrunk(episode: Episode, fails: Callable[[Episode], bool]) -> Episode:
    """A shorter episode that still fails: blocks of operations are left out, half as long each round."""
    operations = list(episode.operations)
    block = max(1, len(operations) // 2)
    while block:
        start = 0
        while start < len(operations):
            shorter = operations[:start] + operations[start + block :]
            if fails(Episode(setup=episode.setup, operations=tuple(shorter))):
                operations = shorter
            else:
                start += block
        block //= 2
    return Episode(setup=episode.setup, operations=tuple(operations))
