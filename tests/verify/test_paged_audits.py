"""Audits of our paged decoder: clean as it is, and each planted fault of memory is found.

Catches an audit of paged memory that cannot fail.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager

import pytest
import torch
from paged_faults import FAULTS

from octopus.verify.audits import Inconclusive
from octopus.verify.functional import paged
from octopus.verify.functional.paged import Circumstances, paged_findings
from octopus.verify.selftest.fault import GEMMA3, GRANITE, LLAMA, NEMOTRON, QWEN, QWEN3, QWEN3_NEXT
from octopus.verify.selftest.paged import EngineStack
from octopus.verify.subject import Subject

SUBJECT = Subject(name="paged", length=0)


def codes(stack) -> set[str]:
    return {finding.code for finding in paged_findings(stack, SUBJECT)}


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32, torch.bfloat16], ids=str)
@pytest.mark.parametrize("family", [LLAMA, QWEN3, QWEN, GEMMA3, QWEN3_NEXT, GRANITE, NEMOTRON])
def test_our_decoder_is_clean(family: str, dtype: torch.dtype) -> None:
    assert codes(EngineStack(family=family, dtype=dtype)) == set()


@pytest.mark.parametrize("fault", FAULTS, ids=lambda fault: fault.__name__)
def test_a_planted_fault_is_found(fault: Callable[[], AbstractContextManager[None]]) -> None:
    with fault():
        assert codes(EngineStack(family=LLAMA, dtype=torch.float32)) >= FAULTS[fault]


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
