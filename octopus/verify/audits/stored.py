"""Masks as they are stored: additive values, heads, block tables, slices."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from octopus.verify.audits.audit import Audit, NotNeeded
from octopus.verify.case import Case, known
from octopus.verify.facets import BlockTable
from octopus.verify.findings import Finding, Severity, Witness
from octopus.verify.groups import gather
from octopus.verify.pairs import of_slices, slice_runs
from octopus.verify.rules import finding
from octopus.verify.subject import FULL, DenseMask, Ranges


def additive_values(case: Case) -> Iterator[Finding]:
    """OCT106: values that neither show nor hide."""
    mask = case.subject.mask
    if not isinstance(mask, DenseMask) or mask.values_HQK is None:
        raise NotNeeded("the mask is not additive")
    values = mask.values_HQK
    lowest = float(np.finfo(values.dtype).min)
    odd = ~((values == 0) | (values <= lowest / 2))
    if odd.any():
        head, query, key = (int(place) for place in np.argwhere(odd)[0])
        value = float(values[head, query, key])
        witness = Witness(
            query=query + case.subject.query_start, key=key, expected="0 or -inf", actual=f"{value:g}"
        )
        cause = None
        if np.isnan(value):
            cause = "-inf was multiplied by 0, or added to +inf"
        elif -1e6 < value <= -1000:
            cause = f"{value:g} is an old convention for hidden"
        elif value == 1:
            cause = "a bool mask was converted to numbers and is added instead of selected by"
        yield finding(
            "OCT106",
            f"the additive mask holds {value:g}, which hides for sure only as -inf or {lowest:g}",
            subject=case.subject,
            count=int(odd.sum()),
            witness=witness,
            cause=cause,
            head=head,
        )
    infinite, finite = values == -np.inf, (values <= lowest / 2) & (values > -np.inf)
    if infinite.any() and finite.any():
        head, query, key = (int(place) for place in np.argwhere(infinite)[0])
        yield finding(
            "OCT106",
            f"the additive mask mixes -inf and {lowest:g}",
            subject=case.subject,
            count=int(infinite.sum()),
            witness=Witness(query=query + case.subject.query_start, key=key, actual="-inf"),
            cause="the smallest number was added twice and has overflowed",
            severity=Severity.WARNING,
            head=head,
        )


def heads_alike(case: Case) -> Iterator[Finding]:
    """OCT108: heads with masks of their own."""
    mask = case.subject.mask
    if not isinstance(mask, DenseMask) or len(mask.seen_HQK) == 1:
        raise NotNeeded("one mask stands for all heads")
    if case.subject.declared.varies_by_head:
        raise NotNeeded("heads were declared to differ")
    for head, seen_QK in enumerate(mask.seen_HQK):
        differ = seen_QK != mask.seen_HQK[0]
        if differ.any():
            query, key = (int(place) for place in np.argwhere(differ)[0])
            actual = "visible" if seen_QK[query, key] else "hidden"
            row = query + case.subject.query_start
            yield finding(
                "OCT108",
                f"head {head} and head 0 differ: {case.names.say(key)} is {actual} to {case.names.say(row)}",
                subject=case.subject,
                count=int(differ.sum()),
                witness=Witness(query=row, key=key, expected="as in head 0", actual=actual),
                head=head,
            )
            return


def overlaps(case: Case) -> Iterator[Finding]:
    """OCT115: slices that list a pair twice."""
    mask = case.subject.mask
    if not isinstance(mask, Ranges):
        raise NotNeeded("the mask does not consist of slices")
    q_N, k0_N, k1_N = slice_runs(mask.slices_S5)
    listed = int(np.maximum(k1_N - k0_N, 0).sum())
    twice = listed - known(case.seen).count
    if not twice:
        return
    order = np.lexsort((k0_N, q_N))
    order = order[k1_N[order] > k0_N[order]]
    q_N, k0_N, k1_N = q_N[order], k0_N[order], k1_N[order]
    reach_N = np.maximum.accumulate(q_N * (case.subject.length + 1) + k1_N)
    again = int(np.flatnonzero((q_N * (case.subject.length + 1) + k0_N)[1:] < reach_N[:-1])[0]) + 1
    q, k, names = int(q_N[again]), int(k0_N[again]), case.names
    yield finding(
        "OCT115",
        f"{names.say(k)} is listed more than once for {names.say(q)}",
        subject=case.subject,
        count=twice,
        witness=Witness(query=q, key=k, expected="in one slice", actual="in two or more"),
        segments=(names.of(q), names.of(k)),
    )


def block_table(case: Case) -> Iterator[Finding]:
    """OCT107: indices that are in order, and blocks that agree with who sees whom."""
    table = known(case.subject.blocks)
    faults = [*_index_faults(table, case.subject.length, case.subject.length - case.subject.query_start)]
    for row, message in faults[:1]:
        yield finding(
            "OCT107",
            message,
            subject=case.subject,
            count=len(faults),
            witness=Witness(row=row, actual=message),
        )
    truth = case.seen if case.seen is not None else case.expected
    if faults or truth is None:
        return
    length = case.subject.length
    full = of_slices(length, _squares(case, table, full=True)).of_rows(case.real_T)
    visited = of_slices(length, _squares(case, table, full=False)) | full
    for wrong, what, expected in (
        (full - truth, "lies in a block marked full, and is not visible", "partial block"),
        (case.judged(truth) - visited, "is visible, and its block is left out", "block in the table"),
    ):
        for group in gather(case, wrong):
            yield finding(
                "OCT107",
                f"{case.names.say(group.k)} {what} to {case.names.say(group.q)}",
                subject=case.subject,
                count=group.count,
                witness=Witness(query=group.q, key=group.k, expected=expected, actual=what),
                segments=(group.reader, group.source),
            )


def _index_faults(table: BlockTable, keys: int, queries: int) -> Iterator[tuple[int, str]]:
    rows, columns = -(-queries // table.block_q), -(-keys // table.block_k)
    if len(table.partial_count_R) != rows:
        made = len(table.partial_count_R) * table.block_q
        yield 0, f"the block table was made for {made} queries, the mask has {queries}"
        return
    kinds = [(table.partial_count_R, table.partial_RC)]
    if table.full_count_R is not None and table.full_RC is not None:
        kinds.append((table.full_count_R, table.full_RC))
    for row in range(rows):
        listed: list[int] = []
        for count_R, index_RC in kinds:
            own = index_RC[row, : int(count_R[row])].tolist()
            if len(own) < int(count_R[row]):
                yield row * table.block_q, f"block row {row} counts {int(count_R[row])} blocks, {len(own)} are listed"
            if own != sorted(set(own)):
                yield row * table.block_q, f"the blocks of block row {row} are not ascending: {own[:8]}"
            listed += own
        if len(set(listed)) < len(listed) and len(kinds) == 2:
            yield row * table.block_q, f"block row {row} lists a block as full and as partial"
        if any(not 0 <= block < columns for block in listed):
            yield row * table.block_q, f"block row {row} lists a block beyond the {columns} that there are"


def _squares(case: Case, table: BlockTable, *, full: bool) -> np.ndarray:
    count_R, index_RC = (table.full_count_R, table.full_RC) if full else (table.partial_count_R, table.partial_RC)
    if count_R is None or index_RC is None:
        return np.empty((0, 5), dtype=np.int64)
    start, length = case.subject.query_start, case.subject.length
    slices = []
    for row, count in enumerate(count_R.tolist()):
        q0 = start + row * table.block_q
        for block in index_RC[row, :count].tolist():
            k0 = block * table.block_k
            slices.append((q0, min(q0 + table.block_q, length), k0, min(k0 + table.block_k, length), FULL))
    return np.array(slices, dtype=np.int64).reshape(-1, 5)


AUDITS = (
    Audit(name="additive values", codes=("OCT106",), needs=("mask",), run=additive_values),
    Audit(name="block table", codes=("OCT107",), needs=("blocks",), run=block_table),
    Audit(name="heads alike", codes=("OCT108",), needs=("mask",), run=heads_alike),
    Audit(name="overlaps", codes=("OCT115",), needs=("seen",), run=overlaps),
)
