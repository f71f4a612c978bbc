"""Who sees what, told a second time from plain lists: the yardstick for plans, views and positions.

Nothing of ours is imported and nothing is shared: a thread stands at a place, and a place is a path of token ids, a
mapping from every visible token id to the position it is seen at, and the position of the next token. Whatever is
said about segments, slices and shifts elsewhere must agree with this, exactly.

`seen_by` and `reached_by` say the same of strangers' rows: from a list of parents and mounts, as walks over a graph.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Literal

import networkx as nx  # type: ignore[import-untyped]

Status = Literal["running", "committed", "cancelled", "failed"]


class Refused(Exception):
    """The primitive does not allow this call; nothing has changed."""


@dataclass(frozen=True, kw_only=True, slots=True)
class OracleToken:
    """A token as it was appended: `visible` holds (token id, effective position) pairs, itself last."""

    value: int
    position: int
    predecessor: int | None
    visible: tuple[tuple[int, int], ...]


@dataclass(frozen=True, kw_only=True, slots=True, eq=False)
class Place:
    """All that a cursor means; a mark is one. Never changed once made.

    Attributes:
        owner: The thread that reached it; None for the start of a root.
        before: The place it was reached from.
        path: Token ids from the root on.
        seen: The position at which each visible token is seen, by id.
        next_position: Of the next token.
    """

    owner: OracleThread | None = None
    before: Place | None = None
    path: tuple[int, ...] = ()
    seen: dict[int, int] = field(default_factory=dict)
    next_position: int = 0


@dataclass(frozen=True, kw_only=True, slots=True, eq=False)
class OracleSnapshot:
    """A committed place; `span` counts the committing thread's own tokens from `own_start` on its path."""

    owner: OracleThread
    place: Place
    span: tuple[int, int] | None


@dataclass(kw_only=True, slots=True, eq=False)
class OracleThread:
    """A thread began at `fork_place` and stands at `place`."""

    parent: OracleThread | None
    fork_place: Place
    place: Place
    status: Status = "running"
    snapshots: list[OracleSnapshot] = field(default_factory=list)

    @property
    def own_start(self) -> int:
        """Path index of its first own token."""
        return len(self.fork_place.path)

    @property
    def own_count(self) -> int:
        """Number of its own tokens."""
        return len(self.place.path) - self.own_start

    def line(self) -> Iterator[Place]:
        """The places from where it stands back to its fork point."""
        place: Place | None = self.place
        while place is not None:
            yield place
            place = None if place is self.fork_place else place.before


class Oracle:
    """The primitives, over token ids that count up from 0. A call that is refused raises and changes nothing."""

    def __init__(self) -> None:
        self.tokens: list[OracleToken] = []
        self.threads: list[OracleThread] = []

    def thread(self) -> OracleThread:
        """A new root."""
        return self._open(None, Place())

    def fork(self, source: OracleThread | OracleSnapshot, n: int = 1) -> list[OracleThread]:
        """Children that stand where the source stands."""
        if isinstance(source, OracleThread):
            _require_running(source)
            return [self._open(source, source.place) for _ in range(n)]
        return [self._open(source.owner, source.place) for _ in range(n)]

    def append(self, thread: OracleThread, values: Sequence[int]) -> list[int]:
        """Append the values; return the new token ids."""
        _require_running(thread)
        first = len(self.tokens)
        for value in values:
            before, token_id = thread.place, len(self.tokens)
            seen = {**before.seen, token_id: before.next_position}
            self.tokens.append(
                OracleToken(
                    value=value,
                    position=before.next_position,
                    predecessor=before.path[-1] if before.path else None,
                    visible=tuple(seen.items()),
                )
            )
            thread.place = Place(
                owner=thread,
                before=before,
                path=(*before.path, token_id),
                seen=seen,
                next_position=before.next_position + 1,
            )
        return list(range(first, len(self.tokens)))

    def read(
        self,
        reader: OracleThread,
        source: OracleThread,
        *,
        last: int | None = None,
        placement: Literal["append", "original"] = "append",
    ) -> list[int]:
        """Make the source's own tokens visible to the reader; return the ids that became visible, in path order."""
        _require_running(reader)
        if source.status in ("cancelled", "failed"):
            raise Refused(f"the source is {source.status}")
        here = reader.place
        snapshot = source.snapshots[-1] if source.status == "committed" else None
        path = snapshot.place.path if snapshot else source.place.path
        own = path[_common_prefix(path, here.path) :]
        if last is not None:
            own = own[max(0, len(own) - last) :]
        elif snapshot and snapshot.span:
            start, stop = (source.own_start + bound for bound in snapshot.span)
            own = path[start:stop]
        new = [token_id for token_id in own if token_id not in here.seen]
        if not new:
            return new
        if placement == "append":
            placed = {token_id: here.next_position + i for i, token_id in enumerate(new)}
        else:
            placed = {token_id: self.tokens[token_id].position for token_id in new}
        reader.place = Place(
            owner=reader,
            before=here,
            path=here.path,
            seen={**here.seen, **placed},
            next_position=max(here.next_position, max(placed.values()) + 1),
        )
        return new

    def mark(self, thread: OracleThread) -> Place:
        """The place to rewind to later."""
        return thread.place

    def rewind(self, thread: OracleThread, to: int | Place | OracleSnapshot) -> None:
        """Back to a place of its own, or to where it first had so many own tokens."""
        _require_running(thread)
        if isinstance(to, int):
            length = thread.own_start + to
            targets = [place for place in thread.line() if len(place.path) == length]
        else:
            place = to.place if isinstance(to, OracleSnapshot) else to
            targets = [place] if place is thread.fork_place or place.owner is thread else []
        if not targets:
            raise Refused("beyond the fork point, or not reached")
        thread.place = targets[-1]

    def commit(
        self, thread: OracleThread, *, span: tuple[int, int] | None = None, keep_running: bool = False
    ) -> OracleSnapshot:
        """Keep the place; end the thread unless told otherwise."""
        _require_running(thread)
        thread.snapshots.append(OracleSnapshot(owner=thread, place=thread.place, span=span))
        if not keep_running:
            thread.status = "committed"
        return thread.snapshots[-1]

    def cancel(self, thread: OracleThread) -> None:
        """Cancel the thread and all below it; what is terminal already stays as it is."""
        for candidate in self.threads:
            if candidate.status == "running" and _descends(candidate, thread):
                candidate.status = "cancelled"

    def fail(self, thread: OracleThread) -> None:
        """End the thread."""
        _require_running(thread)
        thread.status = "failed"

    def _open(self, parent: OracleThread | None, place: Place) -> OracleThread:
        self.threads.append(OracleThread(parent=parent, fork_place=place, place=place))
        return self.threads[-1]


def seen_by(parents: Sequence[int], mounts: Sequence[tuple[int, int, int]] = ()) -> list[set[int]]:
    """Which rows each row may see.

    Args:
        parents: Row of the previous token on the path, -1 where a path begins.
        mounts: `(at, k0, k1)`: rows `[k0, k1)` are visible to row `at` and to all that descend from it.
    """
    tree = nx.DiGraph()
    tree.add_nodes_from(range(len(parents)))
    tree.add_edges_from((parent, row) for row, parent in enumerate(parents) if parent >= 0)
    seen = []
    for row in range(len(parents)):
        path = nx.ancestors(tree, row) | {row}
        mounted = {key for at, k0, k1 in mounts if at in path for key in range(k0, k1)}
        seen.append(path | mounted)
    return seen


def reached_by(seen: Sequence[set[int]]) -> list[set[int]]:
    """Which rows can have any influence on each row, over any number of layers; itself included."""
    sight = nx.DiGraph()
    sight.add_nodes_from(range(len(seen)))
    sight.add_edges_from((row, key) for row, keys in enumerate(seen) for key in keys)
    return [nx.descendants(sight, row) | {row} for row in range(len(seen))]


def _require_running(thread: OracleThread) -> None:
    if thread.status != "running":
        raise Refused(f"the thread is {thread.status}")


def _common_prefix(one: Sequence[int], other: Sequence[int]) -> int:
    length = 0
    while length < min(len(one), len(other)) and one[length] == other[length]:
        length += 1
    return length


def _descends(thread: OracleThread, ancestor: OracleThread) -> bool:
    at: OracleThread | None = thread
    while at is not None and at is not ancestor:
        at = at.parent
    return at is not None
