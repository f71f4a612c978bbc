"""Faults in what the kernels are told: who sees whom, and where everybody stands."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from dataclasses import replace

import numpy as np

from octopus.attention.plan import Plan, Slice
from octopus.verify.selftest.fault import OURS, Fault


def sibling_visible(plan: Plan) -> Plan:
    """Every branch sees the branch of the same cursor before it."""
    pairs = list(_siblings(plan))
    return _with(plan, [_block(younger, older) for older, younger in pairs])


def pair_leaked(plan: Plan) -> Plan:
    """The last row of a branch sees the first row of its sibling."""
    older, younger = next(_siblings(plan))
    return _with(plan, [_block((younger[1] - 1, younger[1]), (older[0], older[0] + 1))])


def ancestor_missing(plan: Plan) -> Plan:
    """A branch does not see the second row of the root."""
    _, younger = next(_siblings(plan))
    return replace(
        plan, slices=tuple(itertools.chain.from_iterable(_without(s, younger, 1) for s in plan.slices))
    )


def future_visible(plan: Plan) -> Plan:
    """The rows of the root see the next one on their path."""
    first = plan.runs.runs[0]
    return _with(
        plan, [_block((row, row + 1), (row + 1, row + 2)) for row in range(first.start, first.stop - 1)]
    )


def causal_over_the_row(plan: Plan) -> Plan:
    """The tree is forgotten: every row sees all rows before it."""
    return replace(plan, slices=(Slice(q0=0, q1=plan.length, k0=0, k1=plan.length, causal=True, shift=0),))


def diagonal_missing(plan: Plan) -> Plan:
    """No row sees itself but those that begin a path, which would see nothing."""
    strict = []
    for piece in plan.slices:
        if not piece.causal:
            strict.append(piece)
        elif plan.predecessors_T[piece.q0] < 0:
            strict.append(replace(piece, q1=piece.q0 + 1, k1=piece.k0 + 1))
        if piece.causal:
            strict += [_block((row, row + 1), (piece.k0, row)) for row in range(piece.q0 + 1, piece.q1)]
    return replace(plan, slices=tuple(strict))


def mount_seen_too_early(plan: Plan) -> Plan:
    """The reader's last token before a mount sees it already."""
    before = plan.predecessors_T
    slices = [
        replace(s, q0=s.q0 - 1) if _is_mount(plan, s) and before[s.q0] == s.q0 - 1 else s for s in plan.slices
    ]
    return replace(plan, slices=tuple(slices))


def key_counted_twice(plan: Plan) -> Plan:
    """The last key of a mounted part comes twice."""
    return _with(plan, [replace(s, k0=s.k1 - 1) for s in plan.slices if _is_mount(plan, s)])


def row_as_position(plan: Plan) -> Plan:
    """Positions are taken from the place in the row."""
    return replace(plan, positions_T=np.arange(plan.length))


def branch_one_late(plan: Plan) -> Plan:
    """One branch begins a position late."""
    _, (start, stop) = next(_siblings(plan))
    rows_T = np.arange(plan.length)
    return replace(plan, positions_T=plan.positions_T + ((start <= rows_T) & (rows_T < stop)))


def positions_restart(plan: Plan) -> Plan:
    """Every segment counts from 0."""
    positions = [np.arange(run.stop - run.start) for run in plan.runs.runs]
    return replace(plan, positions_T=np.concatenate(positions))


def mount_not_shifted(plan: Plan) -> Plan:
    """Mounted keys are seen where they were written."""
    return replace(plan, slices=tuple(replace(s, shift=0) for s in plan.slices))


ROWS = (
    Fault(name="sibling_visible", code="OCT101", about=str(sibling_visible.__doc__), row=sibling_visible),
    Fault(name="pair_leaked", code="OCT101", about=str(pair_leaked.__doc__), row=pair_leaked),
    Fault(
        name="pair_leaked_in_the_kernel",
        code="OCT101",
        about=str(pair_leaked.__doc__),
        row=pair_leaked,
        silent=True,
    ),
    Fault(
        name="causal_over_the_row",
        code="OCT101",
        about=str(causal_over_the_row.__doc__),
        row=causal_over_the_row,
    ),
    Fault(name="ancestor_missing", code="OCT102", about=str(ancestor_missing.__doc__), row=ancestor_missing),
    Fault(
        name="ancestor_missing_in_the_kernel",
        code="OCT102",
        about=str(ancestor_missing.__doc__),
        row=ancestor_missing,
        silent=True,
    ),
    Fault(name="future_visible", code="OCT103", about=str(future_visible.__doc__), row=future_visible),
    Fault(name="diagonal_missing", code="OCT105", about=str(diagonal_missing.__doc__), row=diagonal_missing),
    Fault(
        name="mount_seen_too_early",
        code="OCT101",
        about=str(mount_seen_too_early.__doc__),
        stacks=OURS,
        row=mount_seen_too_early,
    ),
    Fault(
        name="key_counted_twice",
        code="OCT115",
        about=str(key_counted_twice.__doc__),
        stacks=OURS,
        row=key_counted_twice,
    ),
    Fault(name="row_as_position", code="OCT201", about=str(row_as_position.__doc__), row=row_as_position),
    Fault(name="branch_one_late", code="OCT201", about=str(branch_one_late.__doc__), row=branch_one_late),
    Fault(
        name="branch_one_late_in_the_kernel",
        code="OCT204",
        about=str(branch_one_late.__doc__),
        row=branch_one_late,
        silent=True,
    ),
    Fault(
        name="positions_restart", code="OCT201", about=str(positions_restart.__doc__), row=positions_restart
    ),
    Fault(
        name="mount_not_shifted",
        code="OCT204",
        about=str(mount_not_shifted.__doc__),
        stacks=OURS,
        row=mount_not_shifted,
    ),
)


def _block(rows: tuple[int, int], keys: tuple[int, int]) -> Slice:
    return Slice(q0=rows[0], q1=rows[1], k0=keys[0], k1=keys[1], causal=False, shift=0)


def _with(plan: Plan, further: list[Slice]) -> Plan:
    return replace(plan, slices=plan.slices + tuple(further))


def _filled(slices: list[Slice]) -> tuple[Slice, ...]:
    return tuple(s for s in slices if s.q0 < s.q1 and s.k0 < s.k1)


def _without(piece: Slice, rows: tuple[int, int], key: int) -> tuple[Slice, ...]:
    """The slice without the rectangle `rows` x `key`; rows are never cut out of a causal slice here."""
    r0, r1 = max(piece.q0, rows[0]), min(piece.q1, rows[1])
    if piece.causal or r0 >= r1 or not piece.k0 <= key < piece.k1:
        return (piece,)
    return _filled(
        [
            replace(piece, q1=r0),
            replace(piece, q0=r1),
            replace(piece, q0=r0, q1=r1, k1=key),
            replace(piece, q0=r0, q1=r1, k0=key + 1),
        ]
    )


def _siblings(plan: Plan) -> Iterator[tuple[tuple[int, int], tuple[int, int]]]:
    """Row ranges of segments that continue the same row, each with the next of them in the row."""
    families: dict[int, list[tuple[int, int]]] = {}
    for run in plan.runs.runs:
        families.setdefault(int(plan.predecessors_T[run.start]), []).append((run.start, run.stop))
    for before, children in families.items():
        if before >= 0:
            yield from itertools.pairwise(children)


def _is_mount(plan: Plan, piece: Slice) -> bool:
    """Whether it is no stretch of the path: those are seen by all rows from their end to their subtree's end."""
    return not piece.causal and (piece.q0, piece.q1) != (piece.k1, plan.subtree_ends_T[piece.k0])
