"""Spans show exactly what slices show, each pair once, from either side."""

from __future__ import annotations

import numpy as np
import pytest
from numeric import random_plan
from random_graphs import random_episode

from octopus.attention.dag.spans import SpanTable, span_table, turned
from octopus.attention.libraries.key_table import KeyTable, key_table
from octopus.attention.plan import Plan, lower
from octopus.attention.windowed import windowed


def plans(seed: int) -> list[Plan]:
    episode = lower(random_episode(seed, size=60).graph.segments)
    return [random_plan(seed), episode, windowed(episode, 5)]


def painted(table: SpanTable, own_rows: int, other_rows: int) -> np.ndarray:
    """How often each (own, other) cell is shown."""
    seen = np.zeros((own_rows, other_rows), dtype=np.int64)
    own, other = np.arange(own_rows)[:, None], np.arange(other_rows)[None, :]
    for t0, t1, first, stop in table.tiles_N4:
        for x0, x1, o0, o1, low, high, full in table.spans_S7[first:stop]:
            shown = (t0 <= own) & (own < t1) & (x0 <= other) & (other < x1)
            if not full:
                shown &= (o0 <= own) & (own < o1) & (low <= other - own) & (other - own <= high)
            seen += shown
    return seen


def shown_by_slices(table: KeyTable) -> np.ndarray:
    """The same from the key table itself."""
    seen_TL = np.zeros((table.length, len(table.rows_L)), dtype=np.int64)
    for s in table.slices:
        square = np.tri(s.q1 - s.q0, dtype=np.int64)
        seen_TL[s.q0 : s.q1, s.k0 : s.k1] += square if s.causal else square.T if s.mirrored else 1
    return seen_TL


@pytest.mark.parametrize("rows", [4, 16, 64])
@pytest.mark.parametrize("seed", range(6))
def test_spans_show_what_slices_show(seed: int, rows: int) -> None:
    """Catches: a diagonal one off, a pair in two spans or in none, a full span that is not full."""
    for plan in plans(seed):
        made = key_table(plan, rotates=True)
        expected_TL = shown_by_slices(made)
        for most_cells in (rows * 7, 10**9):
            queries = span_table(made.slices, made.length, rows, most_cells=most_cells)
            keys = span_table(turned(made.slices), len(made.rows_L), rows, most_cells=most_cells)
            assert (painted(queries, *expected_TL.shape) == expected_TL).all()
            assert (painted(keys, *expected_TL.T.shape) == expected_TL.T).all()


@pytest.mark.parametrize("rows", [4, 16])
@pytest.mark.parametrize("seed", range(6))
def test_every_row_has_tiles_of_the_right_size(seed: int, rows: int) -> None:
    """Catches: a row without a tile, whose output would be whatever was in memory; a tile larger than its program."""
    for plan in plans(seed):
        for most_cells in (rows * 7, 10**9):
            table = span_table(plan.slices, plan.length, rows, most_cells=most_cells)
            owned = np.zeros(plan.length, dtype=np.int64)
            for t0, t1, first, stop in table.tiles_N4:
                assert 0 < t1 - t0 <= rows
                spans = table.spans_S7[first:stop]
                assert ((spans[:, 1] - spans[:, 0]) * (t1 - t0)).sum() <= 2 * most_cells
                owned[t0:t1] += 1
            assert (owned >= 1).all()
            assert most_cells < 10**9 or (owned == 1).all()
