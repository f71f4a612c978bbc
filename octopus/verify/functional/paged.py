"""Audits of a paged decoder: what lies in memory that nobody may see, and on which pages things lie, must not matter.

OCT503 NaN and infinity in all memory that nothing was written to (free pages, tails of pages, unused states), OCT502
the same with large numbers; OCT504 the same episode on other pages; OCT507 what a reader mounted stays what it was when
the writer goes on. All to the bit; the positive control is an episode with another text.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

import torch
from torch import Tensor

from octopus.verify.audits.audit import Inconclusive
from octopus.verify.findings import Finding, Witness
from octopus.verify.rules import finding
from octopus.verify.subject import Subject


@dataclass(frozen=True, kw_only=True, slots=True)
class Circumstances:
    """What may change around an episode without changing it, and one thing that must change it.

    Attributes:
        pages: The order in which the free pages are taken; None for the pool's own.
        fill: What all memory holds before anything is written.
        writer_goes_on: Whether the writer appends and commits more after it was read, before the reader goes on.
        other_text: The control: the text that the reader reads is another one.
    """

    pages: Sequence[int] | None = None
    fill: float = 0.0
    writer_goes_on: bool = False
    other_text: bool = False


class PagedStack(Protocol):
    """Runs one episode from nothing: a writer, a reader that mounts the writer's text, and decoding by the reader."""

    @property
    def capacity(self) -> int:
        """Number of pages."""
        ...

    def decode(self, circumstances: Circumstances) -> Tensor:
        """What the reader's decoding gives (logits, hidden states or log-probabilities), always of one shape."""
        ...


def paged_findings(stack: PagedStack, subject: Subject) -> list[Finding]:
    """Runs the episode under each of the circumstances.

    Raises Inconclusive if two equal runs differ, or if the control changes nothing.
    """
    plain = stack.decode(Circumstances())
    if not _same(plain, stack.decode(Circumstances())):
        raise Inconclusive("cannot certify: two runs of the same episode differ (OCT509)")
    if _same(plain, stack.decode(Circumstances(other_text=True))):
        raise Inconclusive("vacuous (OCT506): the reader gives the same whatever it reads")
    backwards = tuple(reversed(range(stack.capacity)))
    asked = (
        ("OCT503", "NaN stands in memory that was never written", Circumstances(fill=torch.nan)),
        ("OCT503", "infinity stands in memory that was never written", Circumstances(fill=torch.inf)),
        ("OCT502", "1e4 stands in memory that was never written", Circumstances(fill=1e4)),
        ("OCT504", "the pages are taken in another order", Circumstances(pages=backwards)),
        ("OCT507", "the writer goes on after it was read", Circumstances(writer_goes_on=True)),
    )
    return [
        finding(
            code,
            f"the reader decodes something else when {what}",
            subject=subject,
            witness=Witness(expected="the same to the bit", actual=_difference(plain, found)),
        )
        for code, what, circumstances in asked
        if not _same(plain, found := stack.decode(circumstances))
    ]


def _same(one: Tensor, other: Tensor) -> bool:
    return torch.equal(one, other)  # NaN equals nothing


def _difference(one: Tensor, other: Tensor) -> str:
    if not torch.isfinite(other).all():
        return "something that is not a number"
    return f"differs by up to {float((one - other).abs().max()):.1e}"
