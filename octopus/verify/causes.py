"""What a wrong mask or wrong positions look like: hypotheses that are tried in turn, the first that fits is named."""

from __future__ import annotations

import numpy as np

from octopus.verify.case import Case, known
from octopus.verify.pairs import Pairs, of_slices
from octopus.verify.subject import CAUSAL, FULL


def mask_cause(case: Case) -> str | None:
    """A sentence, if the whole mask is a well-known wrong one."""
    seen, length = case.seen, case.subject.length
    first = case.subject.query_start
    if seen is None or not length:
        return None
    mask = case.judged(seen)
    for slices, sentence in (
        ([(0, length, 0, length, FULL)], "everything is visible: no mask was applied"),
        (
            [(first, length, first, length, CAUSAL), (first, length, 0, first, FULL)],
            "this is one plain causal triangle: packing was not detected, or the mask was replaced by is_causal",
        ),
        (
            [(first, length, 0, length - first, CAUSAL)],
            "the causal triangle starts at the top left, but the queries are the last rows",
        ),
    ):
        if _same(case.judged(of_slices(length, np.array(slices))), mask):
            return sentence
    return None if case.lineage is None else _unconnected(case, mask)


def _unconnected(case: Case, mask: Pairs) -> str | None:
    """Whether only own segments are seen, or only paths."""
    lineage = known(case.lineage)
    own = [(run.start, run.stop, run.start, run.stop, CAUSAL) for run in lineage.runs]
    if _same(case.judged(of_slices(case.subject.length, np.array(own))), mask):
        return "each segment sees only itself: what it continues or mounts is not connected"
    run_N, k0_N, k1_N, _, mounted_N = lineage.pieces().T
    path_N5 = np.stack([*np.array(own)[run_N, :2].T, k0_N, k1_N, np.full_like(k0_N, FULL)], axis=1)
    without_mounts = np.concatenate([np.array(own), path_N5[mounted_N == 0]])
    if _same(case.judged(of_slices(case.subject.length, without_mounts)), mask):
        return "the tree is right, the mounts are missing"
    return None


def position_cause(case: Case) -> str | None:
    """A sentence, if the positions are well-known wrong ones."""
    positions, lineage = case.subject.positions, case.lineage
    if positions is None or lineage is None or not case.subject.length:
        return None
    ids_T, rows_T = positions.ids_AT[0], np.arange(case.subject.length)
    known_T = (lineage.positions_T >= 0) & case.real_T
    offsets = np.unique((ids_T - lineage.positions_T)[known_T])
    starts_T = case.names.starts[case.names.index(rows_T)]
    for guess_T, sentence in (
        (rows_T, "the row's place in the packed row is used as its position"),
        (rows_T - starts_T, "positions start again at 0 in every segment"),
        (lineage.depths_T, "positions count path tokens only: what was mounted takes no positions"),
    ):
        if np.array_equal(ids_T[known_T], guess_T[known_T]):
            return sentence
    if len(offsets) == 1:
        return f"all positions are off by {offsets[0]:+d}"
    return None


def _same(one: Pairs, other: Pairs) -> bool:
    return np.array_equal(one.edges, other.edges)
