"""Lines that were written elsewhere, recorded in a graph anew: same tokens, positions and mounts, no memory yet."""

from __future__ import annotations

from collections.abc import Callable, Iterable

from octopus.core.ancestry import Piece
from octopus.core.cursor import Cursor
from octopus.core.graph import Graph
from octopus.core.lineage import lineage
from octopus.core.mount import Mount
from octopus.core.namespace import PLAIN
from octopus.core.segment import Segment
from octopus.core.thread import Thread


class Grafts:
    """Threads of a graph that stand where cursors from elsewhere do. What several of them see is recorded once.

    Give it a graph that keeps no trace: a graft repeats no call that one could name. And while a graft stands, do not
    audit the graph's positions: those of a line from elsewhere may have gaps. `drop` gives all of it back.
    """

    def __init__(self, graph: Graph) -> None:
        self.graph = graph
        self._grafted: dict[Segment, Segment] = {}
        self._threads: list[Thread] = []

    def thread_at(self, cursor: Cursor) -> Thread:
        """A new root thread that sees exactly what `cursor` sees. Raises nothing: memory is taken when it computes."""
        with self.graph.lock:
            for segment in lineage([cursor.segment]):
                if segment not in self._grafted:
                    self._grafted[segment] = self._graft(segment)
            return self._stand(Cursor(self._grafted[cursor.segment], cursor.length))

    def drop(self) -> None:
        """Gives all threads back."""
        for thread in reversed(self._threads):
            self.graph.drop(thread)
        self._threads.clear()
        self._grafted.clear()

    def _graft(self, segment: Segment) -> Segment:
        ledger, retention = self.graph._ledger, self.graph.retention
        if segment.parent is None:
            thread = self._stand(None)
        else:
            thread = self._stand(Cursor(self._grafted[segment.parent.segment], segment.parent.length))
            mounts = moved_mounts(segment.mounts, self._grafted.get)
            ledger.open_segment(thread, segment.start_position, mounts)
            for mount in mounts:
                retention.hold_mount(mount)
        self.graph.append(thread, segment.tokens)
        return thread.cursor.segment

    def _stand(self, cursor: Cursor | None) -> Thread:
        thread = self.graph._ledger.new_root(PLAIN, 0, cursor)
        self._threads.append(thread)
        return thread


def moved_mounts(mounts: Iterable[Mount], moved: Callable[[Segment], Segment | None]) -> tuple[Mount, ...]:
    """The same tokens at the same positions, in the segments that `moved` names, as far as those go.

    A part for which `moved` gives None is left out. One mount a part: what is gone leaves its positions empty.
    """
    found = []
    for part in (part for mount in mounts for part in mount.parts):
        segment = moved(part.segment)
        stop = 0 if segment is None else min(part.stop, len(segment.tokens))
        if segment is not None and part.start < stop:
            start, piece = segment.path_start + part.start, Piece(segment, part.start, stop)
            base = segment.start_position + part.start + part.shift
            found.append(Mount(Cursor(segment, stop), start, base, "append", [piece]))
    return tuple(found)
