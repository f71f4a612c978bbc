"""A subject while it is audited: what several audits derive from it is derived once."""

from __future__ import annotations

from functools import cached_property
from typing import TypeVar

import numpy as np

from octopus.core.errors import InvariantViolation
from octopus.verify.descent import Malformed
from octopus.verify.lineage import Lineage, lineage_of
from octopus.verify.names import Names, names_of
from octopus.verify.pairs import Pairs, TooManyRuns, of_dense, of_slices
from octopus.verify.subject import FULL, Boundaries, DenseMask, Descent, Ranges, Subject

Value = TypeVar("Value")


def known(value: Value | None) -> Value:
    """The value, which is there because the audit that asks has named it among its needs."""
    if value is None:
        raise InvariantViolation("an audit ran without what it needs")
    return value


class Case:
    """One subject under audit. May raise TooManyRuns where sets of pairs are built."""

    def __init__(self, subject: Subject) -> None:
        self.subject = subject

    @cached_property
    def mismatches(self) -> list[tuple[str, int]]:
        """The arrays, and their lengths, that do not have the subject's length."""
        subject, sizes = self.subject, []
        if isinstance(subject.mask, DenseMask):
            _, queries, keys = subject.mask.seen_HQK.shape
            sizes += [("mask (keys)", keys), ("mask (queries)", queries + subject.query_start)]
        if isinstance(subject.mask, Ranges):
            bounds_S4 = subject.mask.slices_S5[:, :4]
            low, high = (int(bounds_S4.min()), int(bounds_S4.max())) if len(bounds_S4) else (0, 0)
            sizes += [("reach of the slices", reach) for reach in (low, high) if not 0 <= reach <= subject.length]
        if subject.positions is not None:
            sizes.append(("position ids", subject.positions.ids_AT.shape[-1]))
        if subject.padding_T is not None:
            sizes.append(("padding", len(subject.padding_T)))
        if subject.gradients is not None:
            sizes.append(("gradients", subject.gradients.norms_BT.shape[-1]))
        if subject.keys is not None:
            sizes.append(("keys", len(subject.keys.before_TGD)))
        return [(name, size) for name, size in sizes if size != subject.length]

    @cached_property
    def seen(self) -> Pairs | None:
        """Who sees whom, by the mask as it is (of its first head)."""
        mask = self.subject.mask
        if mask is None:
            return None
        if isinstance(mask, DenseMask):
            return of_dense(mask.seen_HQK[0], self.subject.query_start)
        return of_slices(self.subject.length, mask.slices_S5)

    @cached_property
    def _descent(self) -> Descent | None:
        return self.subject.descent or _documents(self.subject)

    @cached_property
    def _lineage_or_fault(self) -> Lineage | Malformed | TooManyRuns | None:
        descent = self._descent
        if descent is None:
            return None
        try:
            return lineage_of(descent, self.subject.length)
        except (Malformed, TooManyRuns) as fault:
            return fault

    @property
    def lineage(self) -> Lineage | None:
        """Who descends from whom; None if that was not declared, or not well."""
        found = self._lineage_or_fault
        if isinstance(found, TooManyRuns):
            raise found
        return found if isinstance(found, Lineage) else None

    @property
    def malformed(self) -> Malformed | None:
        """What is wrong with the declared descent."""
        found = self._lineage_or_fault
        return found if isinstance(found, Malformed) else None

    @cached_property
    def names(self) -> Names:
        """What the rows are called in reports."""
        return names_of(self._descent, self.lineage, self.subject.length)

    @cached_property
    def allowed(self) -> Pairs | None:
        """Who may see whom by descent and declaration, windows left out; None without a descent."""
        if self.lineage is None:
            return None
        return self._with_declared(self.lineage.allowed())

    @cached_property
    def expected(self) -> Pairs | None:
        """Who ought to see whom: `allowed` within the declared window."""
        declared = self.subject.declared
        if self.lineage is None or declared.window is None:
            return self.allowed
        return self._with_declared(self.lineage.allowed(window=declared.window, sinks=declared.sinks))

    def _with_declared(self, pairs: Pairs) -> Pairs:
        both_ways = [(start, stop, start, stop, FULL) for start, stop in self.subject.declared.bidirectional]
        if both_ways:
            pairs = pairs | of_slices(pairs.length, np.array(both_ways))
        return self.judged(pairs)

    def judged(self, pairs: Pairs) -> Pairs:
        """The pairs of which neither side is padding and the first is a query here."""
        if self.subject.query_start or not self.real_T.all():
            pairs = pairs.of_rows(self.query_T & self.real_T)
        return pairs if self.real_T.all() else pairs.without_keys(~self.real_T)

    @cached_property
    def real_T(self) -> np.ndarray:
        """bool: rows that are not padding."""
        padding_T = self.subject.padding_T
        return np.ones(self.subject.length, dtype=bool) if padding_T is None else ~padding_T.astype(bool)

    @cached_property
    def query_T(self) -> np.ndarray:
        """bool: rows that are queries here."""
        return np.arange(self.subject.length) >= self.subject.query_start


def _documents(subject: Subject) -> Descent | None:
    """Documents from cumulative lengths, if these are good."""
    boundaries = subject.boundaries
    if boundaries is None or not sound(boundaries, subject.length):
        return None
    lengths = np.diff(boundaries.queries_N)
    return Descent(documents_T=np.repeat(np.arange(len(lengths)), lengths))


def sound(boundaries: Boundaries, length: int) -> bool:
    """Whether cumulative lengths start at 0, rise strictly, end at `length`, and are the same for the keys."""
    given = boundaries.queries_N
    same = boundaries.keys_N is None or np.array_equal(given, boundaries.keys_N)
    rising = given.ndim == 1 and len(given) >= 2 and bool((np.diff(given) > 0).all())
    return same and rising and bool(given[0] == 0 and given[-1] == length)
