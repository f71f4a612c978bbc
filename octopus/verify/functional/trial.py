"""A stack under audit, and who may see whom in its row, from a source that the stack had no hand in.

Letters: T rows, C hidden channels.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple

import numpy as np
import torch

from octopus.verify.audits.audit import Inconclusive
from octopus.verify.case import Case
from octopus.verify.findings import Finding, Witness
from octopus.verify.functional.stack import Recording, Stack, record
from octopus.verify.lineage import Lineage
from octopus.verify.rules import finding
from octopus.verify.subject import Subject


@dataclass(frozen=True, kw_only=True, eq=False)
class Trial:
    """What a functional audit takes.

    Attributes:
        stack: Runs the row.
        subject: Who descends from whom in it.
    """

    stack: Stack
    subject: Subject

    @cached_property
    def case(self) -> Case:
        """The subject, as the audits of dumps see it."""
        return Case(self.subject)

    @property
    def lineage(self) -> Lineage:
        """Who descends from whom. Raises Inconclusive if that was not declared, or not well."""
        found = self.case.lineage
        if found is None:
            raise Inconclusive("no well-formed descent was declared, so nobody can tell who may see whom")
        return found

    @cached_property
    def visible_TT(self) -> np.ndarray:
        """bool, whether row i may see row j."""
        visible_TT = np.zeros((self.subject.length, self.subject.length), dtype=bool)
        for row, first, stop in zip(*self.lineage.allowed().runs(), strict=True):
            visible_TT[row, first:stop] = True
        return visible_TT

    @cached_property
    def influence_TT(self) -> np.ndarray:
        """bool, whether row j may influence row i: visibility over any number of layers; a row influences itself."""
        found = self.visible_TT | np.eye(self.subject.length, dtype=bool)
        while True:
            further = found.astype(np.float32) @ found.astype(np.float32) > 0
            if np.array_equal(further, found):
                return found
            found = further

    @cached_property
    def baseline(self) -> Recording:
        """The row as it is.

        Raises Inconclusive if a second run differs: then nothing that is compared to the bit can be certified.
        """
        with torch.no_grad():
            first, second = record(self.stack), record(self.stack)
        if difference(first, second, np.ones(self.subject.length, dtype=bool)) is not None:
            raise Inconclusive("cannot certify: two runs of the same row differ (OCT509)")
        return first

    def segments(self) -> Iterator[tuple[int, int]]:
        """Half-open row ranges, within which all rows see the same but for each other."""
        return ((run.start, run.stop) for run in self.lineage.runs)

    def name(self, row: int) -> str:
        """The segment that a row is in."""
        return self.case.names.of(row)

    def found(
        self, code: str, message: str, *, query: int, key: int, count: int, layer: int | None
    ) -> Finding:
        """A finding between two rows, with their segments named."""
        return finding(
            code,
            message,
            subject=self.subject,
            segments=(self.name(query), self.name(key)),
            count=count,
            witness=Witness(query=query, key=key),
            layer=layer,
        )


class Difference(NamedTuple):
    """The first place where two recordings differ: a layer (None for the logits), its first row, how many rows."""

    layer: int | None
    row: int
    rows: int

    @property
    def place(self) -> str:
        """In words."""
        return "the logits" if self.layer is None else f"layer {self.layer}"


def difference(one: Recording, other: Recording, rows_T: np.ndarray) -> Difference | None:
    """Where two recordings first differ, to the bit, among the chosen rows.

    Returns:
        The layer (None for the logits), its first differing row and how many rows of it differ; None if all are equal.
        A row with NaN differs from every other.
    """
    chosen_T = torch.from_numpy(rows_T)
    outputs = zip((*one.layers, one.logits_TV), (*other.layers, other.logits_TV), strict=True)
    for layer, (x_TC, y_TC) in enumerate(outputs):
        differs = np.flatnonzero(((x_TC != y_TC).any(dim=-1).cpu() & chosen_T).numpy())
        if len(differs):
            return Difference(layer if layer < len(one.layers) else None, int(differs[0]), len(differs))
    return None
