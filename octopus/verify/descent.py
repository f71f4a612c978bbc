"""The declared descent in any of its forms, as one: the row of each token's predecessor on its path.

Letters: T tokens.
"""

from __future__ import annotations

import numpy as np

from octopus.verify.subject import Descent, SegmentRow, Stretch


class Malformed(Exception):
    """What was declared describes no forest. The message is a sentence; `row` is where, if that can be said."""

    def __init__(self, message: str, *, row: int | None = None) -> None:
        super().__init__(message)
        self.row = row


def predecessors_of(descent: Descent, length: int) -> np.ndarray:
    """`[T]` int64: the row of the previous token on the path, -1 where a path begins.

    Raises:
        Malformed: the form that was given contradicts itself. Circles are left to who walks the result.
    """
    if descent.parents_T is not None:
        return _from_parents(descent.parents_T, length)
    if descent.intervals_T2 is not None:
        return _from_intervals(descent.intervals_T2, length)
    if descent.segments is not None:
        return _from_segments(descent.segments, length)
    if descent.documents_T is not None:
        return _from_documents(descent.documents_T, length)
    return np.arange(-1, length - 1)


def stretches_of(descent: Descent) -> tuple[Stretch, ...]:
    """The names that the declaration itself gives to rows."""
    if descent.stretches:
        return descent.stretches
    if descent.segments is not None:
        return tuple(Stretch(row.id, row.start, row.start + row.length) for row in descent.segments)
    if descent.documents_T is not None:
        starts = np.flatnonzero(np.diff(descent.documents_T, prepend=-1) != 0).tolist()
        stops = [*starts[1:], len(descent.documents_T)]
        named = zip(starts, stops, strict=True)
        return tuple(Stretch(f"document {n}", start, stop) for n, (start, stop) in enumerate(named))
    return ()


def _from_parents(parents_T: np.ndarray, length: int) -> np.ndarray:
    parents = np.asarray(parents_T)
    if parents.shape != (length,) or parents.dtype.kind not in "iu":
        raise Malformed(f"parents must be {length} whole numbers, came {parents.dtype} of shape {parents.shape}")
    parents = parents.astype(np.int64)
    outside = np.flatnonzero((parents < -1) | (parents >= length))
    if len(outside):
        row = int(outside[0])
        raise Malformed(f"row {row} has parent {parents[row]}, which is no row; a root has -1", row=row)
    own = np.flatnonzero(parents == np.arange(length))
    if len(own):
        raise Malformed(f"row {own[0]} is its own parent; a root has -1", row=int(own[0]))
    return parents


def _from_intervals(intervals_T2: np.ndarray, length: int) -> np.ndarray:
    """The innermost interval around a row's is its parent's. Ends may be inclusive: leaves then have tin == tout."""
    if intervals_T2.shape != (length, 2):
        raise Malformed(f"tree intervals must be {length} pairs, came shape {intervals_T2.shape}")
    enters, leaves = intervals_T2.astype(np.int64).T
    if (leaves < enters).any():
        row = int(np.flatnonzero(leaves < enters)[0])
        raise Malformed(f"row {row} has tout {leaves[row]} before tin {enters[row]}", row=row)
    inclusive = bool((leaves == enters).any())
    predecessors = np.full(length, -1, dtype=np.int64)
    open_rows: list[int] = []
    for row in np.argsort(enters, kind="stable").tolist():
        enter, leave = enters[row], leaves[row]
        while open_rows and (leaves[open_rows[-1]] < enter or (not inclusive and leaves[open_rows[-1]] == enter)):
            open_rows.pop()
        if open_rows:
            above = open_rows[-1]
            if enters[above] == enter or leaves[above] < leave:
                raise Malformed(
                    f"rows {above} and {row} have intervals [{enters[above]}, {leaves[above]}] and "
                    f"[{enter}, {leave}], which overlap and are not nested",
                    row=row,
                )
            predecessors[row] = above
        open_rows.append(row)
    return predecessors


def _from_segments(segments: tuple[SegmentRow, ...], length: int) -> np.ndarray:
    by_id = {row.id: row for row in segments}
    if len(by_id) < len(segments):
        raise Malformed("two segments have the same id")
    predecessors = np.arange(-1, length - 1)
    reach = 0
    for row in sorted(segments, key=lambda row: (row.start, row.length)):
        if row.length < 0 or row.start != reach:
            kind = "overlap" if row.start < reach else "leave a gap"
            raise Malformed(f"segment {row.id} starts at row {row.start}, expected {reach}: segments {kind}", row=reach)
        reach += row.length
    if reach != length:
        raise Malformed(f"the segments cover {reach} rows, the dump has {length}")
    for row in segments:
        if row.length:
            predecessors[row.start] = _last_above(row, by_id)
    return predecessors


def _last_above(row: SegmentRow, by_id: dict[str, SegmentRow]) -> int:
    """The row of the last path token before a segment, through empty ones and forks at length 0."""
    seen = {row.id}
    while row.parent is not None:
        parent = by_id.get(row.parent)
        if parent is None:
            raise Malformed(f"segment {row.id} has the unknown parent {row.parent}", row=row.start)
        if parent.id in seen:
            raise Malformed(f"segment {row.id} descends from itself", row=row.start)
        seen.add(parent.id)
        used = parent.length if row.fork_length is None else row.fork_length
        if not 0 <= used <= parent.length:
            raise Malformed(
                f"segment {row.id} forks after {used} tokens of {parent.id}, which has {parent.length}", row=row.start
            )
        if used:
            return parent.start + used - 1
        row = parent
    return -1


def _from_documents(documents_T: np.ndarray, length: int) -> np.ndarray:
    if documents_T.shape != (length,):
        raise Malformed(f"document ids must be {length} numbers, came shape {documents_T.shape}")
    begins = np.diff(documents_T, prepend=documents_T[:1] - 1 if length else documents_T) != 0
    starts = np.flatnonzero(begins)
    ids, firsts = np.unique(documents_T[starts], return_index=True)
    if len(ids) < len(starts):
        again = int(np.setdiff1d(np.arange(len(starts)), firsts)[0])
        row = int(starts[again])
        raise Malformed(f"document {documents_T[row]} begins a second time at row {row}", row=row)
    return np.where(begins, -1, np.arange(-1, length - 1))
