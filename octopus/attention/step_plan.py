"""A batch of stretches, lowered to flat integers: what paged attention and paged scans see of it.

Letters: T rows of the batch, N rows of one run, K slots.
"""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from dataclasses import dataclass, replace

import numpy as np

from octopus.core.cursor import Cursor
from octopus.core.errors import invariant
from octopus.core.pool import NO_PAGE, unit_of
from octopus.core.reservation import NO_STATE, StateMove
from octopus.core.schedule import Stretch
from octopus.core.segment import Segment
from octopus.core.visibility import view

KEEP = -1
"""Stands for a slot that is not written: the keys and values that are there stay."""


@dataclass(frozen=True, kw_only=True)
class KeyRange:
    """Physical slots of consecutive positions, seen at these plus `shift`. A slot is `page * page_size + offset`.

    Attributes:
        source: Whose tokens they are: `[start, start + K)` of it. Ranges of one source and place have the same slots.
        start: Where in the source the first stands.
        slots_K: The slots.
        seen_at: Position at which the first is seen, the shift included.
        shift: How far that is from where it was written.
    """

    source: Hashable
    start: int
    slots_K: np.ndarray
    seen_at: int
    shift: int

    def from_position(self, position: int) -> KeyRange:
        """What of it is seen at a position or after it."""
        left = max(position - self.seen_at, 0)
        return replace(self, start=self.start + left, slots_K=self.slots_K[left:], seen_at=self.seen_at + left)


@dataclass(frozen=True, kw_only=True)
class StepRun:
    """Rows `[start, stop)` of the batch: consecutive tokens of one segment.

    Attributes:
        keys: Everything visible to the first row besides itself; no slot twice.
        own: The run's rows; row i also sees the first i + 1 of them.
        state_in: State slot to start from, `NO_STATE` for zeros.
        state_out: State slot to write the state after the last row to, `NO_STATE` for nowhere.
    """

    start: int
    stop: int
    keys: tuple[KeyRange, ...]
    own: KeyRange
    state_in: int = NO_STATE
    state_out: int = NO_STATE

    def keys_within(self, window: int | None) -> tuple[KeyRange, ...]:
        """Of `keys` what the first row sees through a window of so many positions, its own the last; all for None."""
        if window is None:
            return self.keys
        near = (keys.from_position(self.own.seen_at - window + 1) for keys in self.keys)
        return tuple(keys for keys in near if len(keys.slots_K))


@dataclass(frozen=True, kw_only=True)
class StepPlan:
    """A batch of runs.

    Attributes:
        tokens_T: Token ids.
        positions_T: Positions.
        slots_T: Where each row's keys and values go, `KEEP` for rows that only attend.
        runs: The runs, covering all rows in order.
    """

    tokens_T: np.ndarray
    positions_T: np.ndarray
    slots_T: np.ndarray
    runs: tuple[StepRun, ...]


def lower_step(stretches: Sequence[tuple[Stretch, StateMove]], *, page_size: int) -> StepPlan:
    """Lays out stretches of one wave as a batch. Their pages must be reserved."""
    table = SlotTable(page_size)
    tokens: list[int] = []
    positions: list[np.ndarray] = []
    slots: list[np.ndarray] = []
    runs: list[StepRun] = []
    for stretch, move in stretches:
        segment, start, stop, again = stretch
        position = segment.start_position + start
        slots_N = table.slots(segment, start, stop)
        run = StepRun(
            start=len(tokens),
            stop=len(tokens) + stop - start,
            keys=_key_ranges(Cursor(segment, start), table),
            own=KeyRange(source=segment, start=start, slots_K=slots_N, seen_at=position, shift=0),
            state_in=move.read,
            state_out=move.write,
        )
        runs.append(run)
        tokens += segment.tokens[start:stop]
        positions.append(np.arange(position, position + stop - start))
        slots.append(np.full_like(slots_N, KEEP) if again else slots_N)
    return StepPlan(
        tokens_T=np.array(tokens, dtype=np.int64),
        positions_T=_joined(positions),
        slots_T=_joined(slots),
        runs=tuple(runs),
    )


class SlotTable:
    """The physical slots of segments' tokens; remembers each segment's for as long as it lives (one step)."""

    def __init__(self, page_size: int) -> None:
        self._page_size = page_size
        self._offsets = np.arange(page_size)
        self._known: dict[Segment, tuple[np.ndarray, bool]] = {}  # And whether no page was given back.

    def slots(self, segment: Segment, start: int, stop: int) -> np.ndarray:
        """Slots of tokens `[start, stop)`, int64."""
        known = self._known.get(segment)
        if known is None:
            known = self._known[segment] = self._slots_of(segment)
        slots = known[0][start:stop]
        if len(slots) != stop - start:
            invariant(False, f"tokens [{start}, {stop}) of {segment} have no pages")
        if not known[1] and len(slots) and slots.min() < 0:
            invariant(False, f"a visible page of {segment} was given back")
        return slots

    def _slots_of(self, segment: Segment) -> tuple[np.ndarray, bool]:
        pages = np.array([unit_of(handle) for handle in segment.pages], dtype=np.int64)
        slots = (pages[:, None] * self._page_size + self._offsets).ravel()
        whole = NO_PAGE not in segment.pages
        if not whole:
            slots[np.repeat(np.array(segment.pages) == NO_PAGE, self._page_size)] = KEEP
        return slots, whole


def _key_ranges(cursor: Cursor, table: SlotTable) -> tuple[KeyRange, ...]:
    return tuple(
        KeyRange(
            source=segment,
            start=start,
            slots_K=table.slots(segment, start, stop),
            seen_at=segment.start_position + start + shift,
            shift=shift,
        )
        for segment, start, stop, shift in view(cursor)
    )


def _joined(arrays: list[np.ndarray]) -> np.ndarray:
    return np.concatenate(arrays) if arrays else np.empty(0, dtype=np.int64)
