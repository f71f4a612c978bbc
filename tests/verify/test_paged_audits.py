"""Audits of our paged decoder: clean as it is, and each planted fault of memory is found.

Catches an audit of paged memory that cannot fail.
"""

from __future__ import annotations

import numpy as np
import pytest
import torch

from octopus.attention import step_plan
from octopus.attention.step_plan import SlotTable
from octopus.core.visibility import view
from octopus.verify.audits import Inconclusive
from octopus.verify.functional import paged
from octopus.verify.functional.paged import Circumstances, paged_findings
from octopus.verify.selftest.fault import GEMMA3, LLAMA, QWEN, QWEN3
from octopus.verify.selftest.paged import EngineStack
from octopus.verify.subject import Subject

SUBJECT = Subject(name="paged", length=0)


def codes(stack) -> set[str]:
    return {finding.code for finding in paged_findings(stack, SUBJECT)}


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32, torch.bfloat16], ids=str)
@pytest.mark.parametrize("family", [LLAMA, QWEN3, QWEN, GEMMA3])
def test_our_decoder_is_clean(family: str, dtype: torch.dtype) -> None:
    assert codes(EngineStack(family=family, dtype=dtype)) == set()


def test_a_tail_that_is_read_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    """The last page of every segment is read to its end."""
    right = SlotTable.slots

    def whole_pages(self, segment, start, stop):
        found = right(self, segment, start, stop)
        if start or not len(found):
            return found
        tail = np.arange(found[-1] + 1, found[-1] // self._page_size * self._page_size + self._page_size)
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

    monkeypatch.setattr(step_plan, "_key_ranges", ranges)
    assert codes(EngineStack(family=LLAMA, dtype=torch.float32)) >= {"OCT502", "OCT503"}


def test_a_page_table_that_is_not_followed_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    """Mounted keys are read from the page after the first one, not from the next of the table."""
    right = SlotTable.slots

    def slots(self, segment, start, stop):
        found = right(self, segment, start, stop)
        return found if stop - start <= 4 or start else found[0] + np.arange(stop - start)

    monkeypatch.setattr(step_plan, "unit_of", lambda handle: handle & 0xFFFFFFFF)
    monkeypatch.setattr(SlotTable, "slots", slots)
    assert "OCT504" in codes(EngineStack(family=LLAMA, dtype=torch.float32))


def test_a_reader_that_follows_its_writer_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    """A mount shows whatever its source has written by now."""
    right = step_plan.view

    def growing(cursor):
        return [
            part._replace(stop=part.segment.computed)
            if part.segment.writer not in (0, cursor.segment.writer)
            else part
            for part in right(cursor)
        ]

    monkeypatch.setattr(step_plan, "view", growing)
    assert codes(EngineStack(family=LLAMA, dtype=torch.float32)) == {"OCT507"}


def test_a_decoder_that_reads_nothing_is_not_certified(monkeypatch: pytest.MonkeyPatch) -> None:
    class Deaf:
        capacity = 4

        def decode(self, circumstances: Circumstances) -> torch.Tensor:
            return torch.zeros(3)

    with pytest.raises(Inconclusive, match="vacuous"):
        paged_findings(Deaf(), SUBJECT)


def test_a_decoder_that_differs_from_itself_is_not_certified() -> None:
    class Restless:
        capacity = 4

        def decode(self, circumstances: Circumstances) -> torch.Tensor:
            return torch.rand(3)

    with pytest.raises(Inconclusive, match="cannot certify"):
        paged_findings(Restless(), SUBJECT)
    assert (
        paged._difference(torch.zeros(2), torch.tensor([0.0, torch.nan])) == "something that is not a number"
    )
