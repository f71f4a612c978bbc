"""Our own rollouts, `episodes.jsonl`: one episode a line, its segments laid out as rows in the order of the file."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from octopus.verify.facets import LossTerms
from octopus.verify.inputs import Hints, Unreadable
from octopus.verify.readers.bag import Bag
from octopus.verify.readers.containers.json_text import is_count
from octopus.verify.readers.containers.source import printable
from octopus.verify.readers.part import Format, Part
from octopus.verify.subject import Descent, Mount, Positions, SegmentRow

SCHEMA_VERSION = 1


@dataclass(frozen=True, kw_only=True, slots=True)
class _Segment:
    """A segment of the record, and the row of its first token. `parent` is a number and a length."""

    parent: tuple[int, int] | None
    position: int
    length: int
    row: int
    mounts: tuple[tuple[int, int, int, int], ...]


def read(bag: Bag, hints: Hints) -> list[Part]:
    """One part an episode, if the lines are episodes."""
    if not bag.lines or "segments" not in bag.lines[0].value:
        return []
    return [_episode(line.value, f"line {line.number}") for line in bag.lines]


def _episode(record: Mapping[str, Any], what: str) -> Part:
    if record.get("schema_version") != SCHEMA_VERSION or not isinstance(record.get("segments"), list):
        raise Unreadable(f"{what} is no episode of schema version {SCHEMA_VERSION}")
    segments: list[_Segment] = []
    row = 0
    for entry in record["segments"]:
        segments.append(_segment(entry, segments, row, f"{what}, segment {len(segments)}"))
        row += segments[-1].length
    # Mounts may name later segments: those of a thread that was opened before the one it reads.
    for segment in segments:
        for source, start, stop, _ in segment.mounts:
            if source >= len(segments) or not start <= stop <= segments[source].length:
                raise Unreadable(f"{what} mounts tokens that it does not hold")
    descent = Descent(
        segments=tuple(
            SegmentRow(
                id=str(number),
                parent=None if segment.parent is None else str(segment.parent[0]),
                start=segment.row,
                length=segment.length,
                fork_length=None if segment.parent is None else segment.parent[1],
            )
            for number, segment in enumerate(segments)
        ),
        mounts=_mounts(segments),
    )
    positions = [np.arange(s.position, s.position + s.length) for s in segments]
    name = record.get("name")
    return Part(
        fields={
            "descent": descent,
            "positions": Positions(ids_AT=np.concatenate(positions or [np.arange(0)])[None], dtype="int64"),
            "loss": _loss(record, segments, row, what),
        },
        length=row,
        name=printable(name) if isinstance(name, str) and name else what,
        notes=("segments were laid out as rows in the order of the file; targets are the path predecessors",),
    )


def _segment(entry: Any, before: list[_Segment], row: int, what: str) -> _Segment:
    if not isinstance(entry, dict) or not is_count(entry.get("position")) or not isinstance(entry.get("tokens"), list):
        raise Unreadable(f"{what} has no position and tokens")
    parent, mounts = entry.get("parent"), entry.get("mounts", [])
    if parent is not None:
        if not _counts(parent, 2) or parent[0] >= len(before) or parent[1] > before[parent[0]].length:
            raise Unreadable(f"{what} continues something that is not before it")
        parent = (parent[0], parent[1])
    if not isinstance(mounts, list) or not all(isinstance(mount, list) for mount in mounts):
        raise Unreadable(f"{what} has mounts that are no lists of parts")
    parts = [part for mount in mounts for part in mount]
    for part in parts:
        if not isinstance(part, list) or len(part) != 4 or not _counts(part[:3], 3) or not isinstance(part[3], int):
            raise Unreadable(f"{what}: a mounted part is segment, start, stop, shift")
    return _Segment(
        parent=parent,
        position=entry["position"],
        length=len(entry["tokens"]),
        row=row,
        mounts=tuple((part[0], part[1], part[2], part[3]) for part in parts),
    )


def _mounts(segments: list[_Segment]) -> tuple[Mount, ...]:
    """Each mount at the first row below it.

    Those of an empty segment, or of one continued from its very start, become visible at the first tokens of what
    continues there.
    """
    found: list[Mount] = []
    at_start: list[list[tuple[int, int, int, int]]] = []
    for segment in segments:
        inherited = at_start[segment.parent[0]] if segment.parent and segment.parent[1] == 0 else []
        at_start.append([*inherited, *segment.mounts])
        if not segment.length:
            continue
        for source, start, stop, shift in at_start[-1]:
            first = segments[source].row
            found.append(Mount(at=segment.row, k0=first + start, k1=first + stop, shift=shift))
    return tuple(found)


def _loss(record: Mapping[str, Any], segments: list[_Segment], length: int, what: str) -> LossTerms:
    sampled = record.get("sampled", [])
    if not isinstance(sampled, list):
        raise Unreadable(f"{what}: sampled is not a list")
    sampled_T = np.zeros(length, dtype=bool)
    rows, predictors = [], []
    for entry in sampled:
        if not isinstance(entry, list) or len(entry) != 4 or not _counts(entry[:2], 2) or entry[0] >= len(segments):
            raise Unreadable(f"{what}: a sampled token is segment, offset, log-probability, live")
        number, offset, _, live = entry
        if offset >= segments[number].length:
            raise Unreadable(f"{what}: a sampled token lies beyond its segment")
        row = segments[number].row + offset
        sampled_T[row] = True
        before = _before(segments, number, offset)
        if live and before is not None:
            rows.append(row)
            predictors.append(before)
    return LossTerms(
        token_rows_N=np.array(rows, dtype=np.int64),
        predictor_rows_N=np.array(predictors, dtype=np.int64),
        sampled_T=sampled_T,
    )


def _before(segments: list[_Segment], number: int, offset: int) -> int | None:
    """Row of the token before a place on its path; None at a root."""
    while offset == 0:
        parent = segments[number].parent
        if parent is None:
            return None
        number, offset = parent
    return segments[number].row + offset - 1


def _counts(value: Any, n: int) -> bool:
    return isinstance(value, list) and len(value) == n and all(map(is_count, value))


FORMAT = Format(name="episodes", names=(), read=read)
