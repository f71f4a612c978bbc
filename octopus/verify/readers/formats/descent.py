"""Who descends from whom: parents, tree intervals, a segment table, node lengths, or document numbers.

Arrays are `[T]` or `[B, T]`. A segment table is `[N, 4]` or `[N, 5]` with columns id, parent (-1 for none), start,
length, fork length, or in JSON a list of objects with those keys. Mounts are `[N, 3]` or `[N, 4]`: at, k0, k1, shift.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import numpy as np

from octopus.verify.inputs import Hints, Unreadable
from octopus.verify.readers.bag import Bag
from octopus.verify.readers.part import Format, Part
from octopus.verify.subject import Descent, Mount, SegmentRow, Stretch

DOCUMENTS = ("document_ids", "segment_ids", "sequence_ids", "seq_idx")
FORMS = (("segments",), ("parents",), ("tin", "tout"), DOCUMENTS)


def read(bag: Bag, hints: Hints) -> list[Part]:
    """One part a batch row. Raises `Unreadable` if there are two descriptions."""
    given = [form for form in FORMS if any(name in bag.arrays or name in bag.tables for name in form)]
    if len(given) > 1:
        raise Unreadable(f"{' and '.join(form[0] for form in given)} both say who descends from whom: give one")
    descents = _descents(bag) if given else []
    more = _mounts(bag), _times(bag), _stretches(bag)
    if not descents and any(value is not None and len(value) for value in more):
        raise Unreadable("mounts, times and stretches need a descent beside them, for example parents")
    mounts, times_T, stretches = more
    return [
        Part(fields={"descent": replace(d, mounts=mounts, times_T=times_T, stretches=stretches)}, length=length)
        for d, length in descents
    ]


def _descents(bag: Bag) -> list[tuple[Descent, int]]:
    if "segments" in bag.arrays or "segments" in bag.tables:
        segments = _segments(bag)
        return [(Descent(segments=segments), max((s.start + s.length for s in segments), default=0))]
    parents = bag.integers("parents")
    if parents is not None and "lengths" in bag.arrays:
        segments = _nodes(parents, bag)
        return [(Descent(segments=segments), segments[-1].start + segments[-1].length if segments else 0)]
    if parents is not None:
        return [(Descent(parents_T=row), len(row)) for row in _rows(parents, "parents")]
    tin, tout = bag.integers("tin"), bag.integers("tout")
    if (tin is None) != (tout is None) or (tin is not None and tout is not None and tin.shape != tout.shape):
        raise Unreadable("tin and tout belong together and have one shape")
    if tin is not None and tout is not None:
        pairs = zip(_rows(tin, "tin"), _rows(tout, "tout"), strict=True)
        return [(Descent(intervals_T2=np.stack(pair, axis=1)), len(pair[0])) for pair in pairs]
    documents = bag.integers(*DOCUMENTS)
    assert documents is not None
    return [(Descent(documents_T=row), len(row)) for row in _rows(documents, "document_ids")]


def _rows(array: np.ndarray, name: str) -> np.ndarray:
    if not 1 <= array.ndim <= 2:
        raise Unreadable(f"{name} has shape {array.shape}; it is [T] or [B, T]")
    return np.atleast_2d(array)


def _segments(bag: Bag) -> tuple[SegmentRow, ...]:
    table = bag.integers("segments")
    if table is None:
        return tuple(_segment(entry) for entry in _objects(bag, "segments"))
    if not table.size:
        return ()
    if table.ndim != 2 or table.shape[1] not in (4, 5):
        raise Unreadable(f"segments has shape {table.shape}; columns are id, parent, start, length and fork length")
    return tuple(
        SegmentRow(
            id=str(row[0]),
            parent=None if row[1] < 0 else str(row[1]),
            start=int(row[2]),
            length=int(row[3]),
            fork_length=int(row[4]) if len(row) == 5 and row[4] >= 0 else None,
        )
        for row in table
    )


def _segment(entry: Mapping[str, Any]) -> SegmentRow:
    names, parent = set(entry), entry.get("parent")
    if not {"id", "start", "length"} <= names <= {"id", "parent", "start", "length", "fork_length"}:
        raise Unreadable("a segment has the keys id, start and length, and may have parent and fork_length")
    fork = entry.get("fork_length")
    for value in (entry["start"], entry["length"], *([] if fork is None else [fork])):
        _require_integer(value, "a segment's start, length and fork_length")
    return SegmentRow(
        id=str(entry["id"]),
        parent=None if parent is None or parent == -1 else str(parent),
        start=entry["start"],
        length=entry["length"],
        fork_length=fork,
    )


def _nodes(parents: np.ndarray, bag: Bag) -> tuple[SegmentRow, ...]:
    """Nodes laid out one after the other, with the parent node of each."""
    lengths, forks = bag.integers("lengths"), bag.integers("fork_lengths")
    assert lengths is not None
    if parents.ndim != 1 or lengths.shape != parents.shape or (forks is not None and forks.shape != parents.shape):
        raise Unreadable("parents, lengths and fork_lengths of nodes are lists of one length")
    starts = np.cumsum(lengths) - lengths
    return tuple(
        SegmentRow(
            id=str(i),
            parent=None if parents[i] < 0 else str(parents[i]),
            start=int(starts[i]),
            length=int(lengths[i]),
            fork_length=None if forks is None else int(forks[i]),
        )
        for i in range(len(parents))
    )


def _mounts(bag: Bag) -> tuple[Mount, ...]:
    table = bag.integers("mounts")
    if table is None or not table.size:
        return ()
    if table.ndim != 2 or table.shape[1] not in (3, 4):
        raise Unreadable(f"mounts has shape {table.shape}; columns are at, k0, k1 and shift")
    placement = bag.tables.get("placement")
    if placement not in (None, "append", "original"):
        raise Unreadable("placement is append or original")
    return tuple(
        Mount(
            at=int(row[0]),
            k0=int(row[1]),
            k1=int(row[2]),
            shift=int(row[3]) if len(row) == 4 else None,
            placement=placement,
        )
        for row in table
    )


def _times(bag: Bag) -> np.ndarray | None:
    times = bag.integers("times")
    if times is not None and times.ndim != 1:
        raise Unreadable(f"times has shape {times.shape}; it is [T]")
    return times


def _stretches(bag: Bag) -> tuple[Stretch, ...]:
    if "stretches" not in bag.tables:
        return ()
    found = []
    for entry in _objects(bag, "stretches"):
        if set(entry) != {"name", "start", "stop"}:
            raise Unreadable("a stretch has the keys name, start and stop")
        _require_integer(entry["start"], "a stretch's start")
        _require_integer(entry["stop"], "a stretch's stop")
        found.append(Stretch(name=str(entry["name"]), start=entry["start"], stop=entry["stop"]))
    return tuple(found)


def _objects(bag: Bag, name: str) -> list[Mapping[str, Any]]:
    table = bag.tables[name]
    if not isinstance(table, list) or not all(isinstance(entry, dict) for entry in table):
        raise Unreadable(f"{name} should be a list of objects")
    return table


def _require_integer(value: object, what: str) -> None:
    if not isinstance(value, int) or isinstance(value, bool) or abs(value) > 2**48:
        raise Unreadable(f"{what} should be integers")


MORE = ("lengths", "fork_lengths", "mounts", "times", "stretches", "placement")
FORMAT = Format(name="descent", names=(*(name for form in FORMS for name in form), *MORE), read=read)
