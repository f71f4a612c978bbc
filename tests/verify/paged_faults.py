"""Faults of paged memory, planted where a step's keys are found, so that every backend reads what they say."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from unittest.mock import patch

import numpy as np

from octopus.attention import step_plan
from octopus.attention.step_plan import SlotTable
from octopus.core.visibility import view


@contextmanager
def tail_is_read() -> Iterator[None]:
    """The last page of every segment is read to its end."""
    right = SlotTable.slots

    def whole_pages(table, segment, start, stop):
        found = right(table, segment, start, stop)
        if start or not len(found):
            return found
        tail = np.arange(found[-1] + 1, found[-1] // table._page_size * table._page_size + table._page_size)
        return np.concatenate([found, tail])

    def ranges(cursor, table):
        return tuple(
            step_plan.KeyRange(
                source=segment,
                start=start,
                slots_K=whole_pages(table, segment, start, stop),
                seen_at=segment.start_position + start + shift,
                shift=shift,
            )
            for segment, start, stop, shift in view(cursor)
        )

    with patch.object(step_plan, "_key_ranges", ranges):
        yield


@contextmanager
def page_table_is_not_followed() -> Iterator[None]:
    """Mounted keys are read from the page after the first one, not from the next of the table."""
    right = SlotTable.slots

    def slots(table, segment, start, stop):
        found = right(table, segment, start, stop)
        return found if stop - start <= 4 or start else found[0] + np.arange(stop - start)

    with (
        patch.object(step_plan, "unit_of", lambda handle: handle & 0xFFFFFFFF),
        patch.object(SlotTable, "slots", slots),
    ):
        yield


@contextmanager
def reader_follows_its_writer() -> Iterator[None]:
    """A mount shows whatever its source has written by now."""
    right = step_plan.view

    def growing(cursor):
        return [
            part._replace(stop=part.segment.computed)
            if part.segment.writer not in (0, cursor.segment.writer)
            else part
            for part in right(cursor)
        ]

    with patch.object(step_plan, "view", growing):
        yield


FAULTS = {
    tail_is_read: {"OCT502", "OCT503"},
    page_table_is_not_followed: {"OCT504"},
    reader_follows_its_writer: {"OCT507"},
}
"""The codes by which each must be found."""
