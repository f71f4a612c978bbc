"""The model: the primitives over lines, as plain as they can be told.

It shares no code and no idea of storage with what it checks. A call that is refused raises `Refused` with the name of
the error that the store must raise, and has changed nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from fuzz.lines import Line, Read, Token, after_tokens, common_tokens, last_uid, next_position, path, view
from fuzz.model_waits import ModelWait, Waits

ENDED = ("committed", "cancelled", "failed")


class Refused(Exception):
    """The call is not allowed. Its argument is the name of the error class."""


@dataclass(frozen=True, kw_only=True, slots=True, eq=False)
class ModelSnapshot:
    """A committed place. Nothing about it ever changes."""

    owner: ModelThread
    line: Line
    version: int
    span: tuple[int, int] | None


@dataclass(kw_only=True, slots=True, eq=False)
class ModelThread:
    """A thread that began with the first `inherited` entries of its line.

    Attributes:
        published: `last_uid` of the place that has the latest version; None before the first.
    """

    id: int
    parent: ModelThread | None
    line: Line
    inherited: int
    weights: int
    status: str = "running"
    version: int = 0
    published: int | None = None
    snapshots: list[ModelSnapshot] = field(default_factory=list)
    wait: ModelWait | None = None
    dropped: bool = False

    @property
    def ended(self) -> bool:
        """Whether the status is one that never changes again."""
        return self.status in ENDED

    @property
    def own_count(self) -> int:
        """Number of its own tokens since the fork."""
        return len(path(self.line)) - self.own_start

    @property
    def own_start(self) -> int:
        """Path index of its first own token."""
        return len(path(self.line[: self.inherited]))


class Model:
    """All threads ever made, and the rules of the primitives."""

    def __init__(self, clock_s: Callable[[], float]) -> None:
        self.threads: list[ModelThread] = []
        self.weights = 0
        self.waits = Waits(clock_s)
        self._uids = 0
        self._handed_out: set[int] = set()

    # ---- guards ----

    def known(self, thread: ModelThread) -> None:
        """Refuses a handle that was dropped."""
        if thread.dropped:
            raise Refused("StaleHandle")

    def running(self, thread: ModelThread) -> None:
        """Refuses a thread that cannot go on."""
        self.known(thread)
        if thread.status != "running":
            raise Refused("NotRunning")
        self.readable(thread)

    def readable(self, thread: ModelThread) -> None:
        """Refuses what older weights wrote."""
        if thread.weights != self.weights:
            raise Refused("StaleWeights")

    # ---- primitives ----

    def thread(self) -> ModelThread:
        """A new root."""
        return self._open(None, ())

    def thread_from(self, found: Sequence[tuple[int, int]], values: Sequence[int]) -> ModelThread:
        """A new root on tokens that are there already, `(uid, value)` from position 0 on, and then new ones."""
        line: Line = tuple(Token(uid, value, position) for position, (uid, value) in enumerate(found))
        thread = self._open(None, line)
        thread.inherited = 0
        self.append(thread, values)
        return thread

    def fork(self, source: ModelThread | ModelSnapshot, n: int) -> list[ModelThread]:
        """Children with the source's line."""
        parent = source.owner if isinstance(source, ModelSnapshot) else source
        if isinstance(source, ModelSnapshot):
            self.known(parent)
            if source not in parent.snapshots:
                raise Refused("StaleHandle")
            self.readable(parent)
        else:
            self.running(parent)
        if n < 1:
            raise Refused("ForkRefused")
        self._hand_out(source.line)
        return [self._open(parent, source.line) for _ in range(n)]

    def append(self, thread: ModelThread, values: Sequence[int]) -> list[int]:
        """Adds tokens; returns their uids."""
        self.running(thread)
        added: list[Token] = []
        position = next_position(thread.line)
        for value in values:
            added.append(Token(self._uid(), value, position + len(added)))
        thread.line += tuple(added)
        return [token.uid for token in added]

    def read(self, reader: ModelThread, source: ModelThread, last: int | None, placement: str) -> int:
        """Adds what the reader does not see of the source's own tokens; returns how many those are."""
        self.running(reader)
        self.known(source)
        if source.status in ("cancelled", "failed"):
            raise Refused("UnreadableSource")
        self.readable(source)
        seen = view(reader.line)
        new = [token for token in self._offered(reader, source, last) if token.uid not in seen]
        if not new:
            return 0
        base = next_position(reader.line)
        if placement == "append":
            placed = [(token.uid, base + index) for index, token in enumerate(new)]
        else:
            placed = [(token.uid, token.position) for token in new]
        fresh_version = not source.ended and source.published != last_uid(source.line)
        if fresh_version:
            self._publish(source)
        self._add_read(reader, tuple(placed), max(base, max(position for _, position in placed) + 1))
        if fresh_version:
            self.waits.settle()
        return len(new)

    def wait(
        self, thread: ModelThread, others: Sequence[ModelThread], mode: str, until: str, timeout_s: float | None
    ) -> ModelWait:
        """Suspends the thread unless what it waits for has happened."""
        self.running(thread)
        for other in others:
            self.known(other)
        if mode == "any" and not others:
            raise Refused("ValueError")
        wait = ModelWait(thread, tuple(others), mode, until, self.waits.deadline_s(timeout_s))
        if not wait.met():
            if self.waits.would_close_cycle(thread, others):
                raise Refused("WaitCycle")
            thread.status, thread.wait = "waiting", wait
            self.waits.open.append(wait)
        else:
            wait.finish()
        return wait

    def mark(self, thread: ModelThread) -> Line:
        """The place, to rewind to later."""
        self.running(thread)
        self._hand_out(thread.line)
        return thread.line

    def rewind(self, thread: ModelThread, to: int | Line | ModelSnapshot) -> None:
        """Back to a count of own tokens, a mark on the line, or any snapshot of its own."""
        self.running(thread)
        if isinstance(to, ModelSnapshot):
            target: Line | None = to.line if to.owner is thread else None
        elif isinstance(to, int):
            target = after_tokens(thread.line, thread.inherited, to) if to >= 0 else None
        else:
            target = to if thread.line[: len(to)] == to else None
        if target is None:
            raise Refused("RewindRefused")
        thread.line = target

    def commit(self, thread: ModelThread, span: tuple[int, int] | None, keep_running: bool) -> ModelSnapshot:
        """Keeps the place; ends the thread unless told otherwise."""
        self.running(thread)
        if span is not None and not 0 <= span[0] <= span[1] <= thread.own_count:
            raise Refused("ValueError")
        self._hand_out(thread.line)
        self._publish(thread)
        snapshot = ModelSnapshot(owner=thread, line=thread.line, version=thread.version, span=span)
        thread.snapshots.append(snapshot)
        if not keep_running:
            thread.status = "committed"
        self.waits.settle()
        return snapshot

    def cancel(self, thread: ModelThread) -> None:
        """Ends the thread and all below it that have not ended."""
        self.known(thread)
        for other in self.threads:
            if not other.ended and _descends(other, thread):
                self._end(other, "cancelled")
                other.snapshots = []
        self.waits.settle()

    def fail(self, thread: ModelThread) -> None:
        """Ends the thread alone."""
        self.known(thread)
        if not thread.ended:
            self._end(thread, "failed")
            thread.snapshots = []
            self.waits.settle()

    def drop(self, thread: ModelThread) -> None:
        """Gives the handle back; a thread that has not ended is cancelled, its children are not."""
        self.known(thread)
        if not thread.ended:
            self._end(thread, "cancelled")
        thread.snapshots, thread.dropped = [], True
        self.waits.settle()

    def advance_weights(self) -> None:
        """Nothing written so far may be read."""
        self.weights += 1

    # ---- inner workings ----

    def _offered(self, reader: ModelThread, source: ModelThread, last: int | None) -> list[Token]:
        line, span = source.line, None
        if source.status == "committed":
            line, span = source.snapshots[-1].line, source.snapshots[-1].span
        tokens = path(line)
        first = common_tokens(tokens, path(reader.line))
        if last is not None:
            return tokens[max(first, len(tokens) - last) :]
        if span is not None:
            return tokens[max(first, source.own_start + span[0]) : source.own_start + span[1]]
        return tokens[first:]

    def _add_read(self, reader: ModelThread, placed: tuple[tuple[int, int], ...], resume: int) -> None:
        """A new read; or more of the last one, as long as nobody else knows of that place."""
        last = reader.line[-1] if reader.line else None
        made_here = len(reader.line) > reader.inherited
        if isinstance(last, Read) and made_here and last.uid not in self._handed_out:
            reader.line = (*reader.line[:-1], Read(last.uid, last.seen + placed, resume))
        else:
            reader.line = (*reader.line, Read(self._uid(), placed, resume))

    def _open(self, parent: ModelThread | None, line: Line) -> ModelThread:
        id = len(self.threads)
        self.threads.append(
            ModelThread(id=id, parent=parent, line=line, inherited=len(line), weights=self.weights)
        )
        return self.threads[-1]

    def _end(self, thread: ModelThread, status: str) -> None:
        if thread.wait is not None:
            self.waits.close(thread.wait)
        thread.status = status

    def _publish(self, thread: ModelThread) -> None:
        thread.version += 1
        thread.published = last_uid(thread.line)

    def _hand_out(self, line: Line) -> None:
        self._handed_out.add(last_uid(line))

    def _uid(self) -> int:
        self._uids += 1
        return self._uids - 1


def _descends(thread: ModelThread, ancestor: ModelThread) -> bool:
    at: ModelThread | None = thread
    while at is not None and at is not ancestor:
        at = at.parent
    return at is not None
