"""A thread of an engine: the handle that users hold."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import TYPE_CHECKING

from octopus.core.ancestry import path_pieces
from octopus.core.cursor import Cursor
from octopus.core.errors import ForkRefused
from octopus.core.mount import Placement
from octopus.core.thread import Mark, Snapshot, Status
from octopus.core.thread import Thread as Record
from octopus.core.waits import Wait, WaitMode, WaitUntil

if TYPE_CHECKING:
    from octopus.rollout.engine import Engine
    from octopus.rollout.generation import Generation


class Thread:
    """An agent's line of work on an engine. The primitives are those of `Graph`; texts are encoded here.

    Attributes:
        record: The graph's own record.
        draws: How many random draws it has made; never goes back.
        sampled: Every token it has sampled, as the cursor right after it and its log-probability; rewound ones too.
    """

    def __init__(self, engine: Engine, record: Record) -> None:
        self.record = record
        self.draws = 0
        self.sampled: list[tuple[Cursor, float]] = []
        self._engine = engine

    @property
    def id(self) -> int:
        """Its number in the graph, never reused."""
        return self.record.id

    @property
    def status(self) -> Status:
        """Where it stands in its life."""
        return self.record.status

    @property
    def tokens(self) -> list[int]:
        """Its own tokens since the fork point."""
        start = self.record.fork_cursor.path_length
        pieces = path_pieces(self.record.cursor, start)
        return [token for piece in pieces for token in piece.segment.tokens[piece.start : piece.stop]]

    @property
    def text(self) -> str:
        """Its own tokens since the fork point, decoded, special tokens included."""
        return str(self._engine.tokenizer.decode(self.tokens))

    @property
    def next_position(self) -> int:
        """The position that its next token takes."""
        return self.record.cursor.next_position

    def fork(self, n: int = 1, *, snapshot: Snapshot | None = None) -> list[Thread]:
        """`n` children that see what this thread sees, or saw at a snapshot of its own. See `Graph.fork`."""
        if snapshot is not None and snapshot.thread is not self.record:
            raise ForkRefused(f"the snapshot is one of thread {snapshot.thread.id}; fork it from there, not {self}")
        source = self.record if snapshot is None else snapshot
        return [Thread(self._engine, record) for record in self._engine.graph.fork(source, n)]

    def append(self, text: str | Sequence[int]) -> None:
        """Adds a text (or token ids) to its line. Computed when somebody needs it."""
        encode = self._engine.tokenizer
        tokens = encode(text, add_special_tokens=False).input_ids if isinstance(text, str) else text
        self._engine.graph.append(self.record, tokens)

    def append_sampled(self, token: int, log_probability: float) -> None:
        """Adds a token that was sampled from this thread, and counts the draw."""
        self._engine.graph.append(self.record, [token])
        self.draws += 1
        self.sampled.append((self.record.cursor, log_probability))

    def read_thread(self, source: Thread, *, last: int | None = None, placement: Placement = "append") -> int:
        """Mounts the source's KV where it lies; returns how many tokens became visible. See `Graph.read_thread`."""
        return self._engine.graph.read_thread(self.record, source.record, last=last, placement=placement)

    def wait_threads(
        self,
        others: Sequence[Thread],
        *,
        mode: WaitMode = "all",
        until: WaitUntil = "terminal",
        timeout_s: float | None = None,
    ) -> Wait:
        """Suspends until the others have ended or have a newer version. See `Graph.wait_threads`."""
        records = [other.record for other in others]
        return self._engine.graph.wait_threads(self.record, records, mode=mode, until=until, timeout_s=timeout_s)

    def mark(self) -> Mark:
        """Names its place for a later rewind."""
        return self._engine.graph.mark(self.record)

    def rewind(self, to: int | Mark | Snapshot, *, recompute: bool = True) -> None:
        """Moves its own cursor back. See `Graph.rewind`."""
        self._engine.graph.rewind(self.record, to, recompute=recompute)

    def commit(self, *, span: tuple[int, int] | None = None, keep_running: bool = False) -> Snapshot:
        """Computes what is missing, then commits. See `Graph.commit`."""
        self._engine.compute([self])
        return self._engine.graph.commit(self.record, span=span, keep_running=keep_running)

    def cancel(self) -> None:
        """Ends it and its descendants. See `Graph.cancel`."""
        self._engine.graph.cancel(self.record)

    def drop(self) -> None:
        """Gives the handle back. See `Graph.drop`."""
        self._engine.graph.drop(self.record)

    def generate(
        self, *, max_tokens: int, temperature: float = 0.0, stop_tokens: Collection[int] | None = None
    ) -> Generation:
        """Samples from this thread alone. See `Engine.generate`."""
        generations = self._engine.generate(
            [self], max_tokens=max_tokens, temperature=temperature, stop_tokens=stop_tokens
        )
        return generations[0]

    def __repr__(self) -> str:
        return f"thread {self.id}"
