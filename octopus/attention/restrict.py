"""Plans of a part of a row: which rows a few of them hang on, and the plan of those rows alone.

Letters: T rows of the whole row.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from octopus.attention.plan import Plan, Slice
from octopus.core.errors import invariant


def influence_rows(plan: Plan, rows: np.ndarray) -> np.ndarray:
    """All rows that can carry something to the given ones, over any number of layers, themselves included.

    It is the closure of visibility: a row, all that it sees, all that these see, and so on. A row sees its whole path,
    so recurrent states and convolutions need nothing more; waits show nothing and need nothing.

    Args:
        plan: The row.
        rows: Indices of rows, in any order.

    Returns:
        bool [T].
    """
    reached_T = np.zeros(plan.length, dtype=bool)
    reached_T[rows] = True
    bounds = np.array([(s.q0, s.q1, s.k0, s.k1) for s in plan.slices], dtype=np.int64).reshape(-1, 4)
    causal = np.array([s.causal for s in plan.slices], dtype=bool)
    q0, q1, k0, k1 = bounds.T
    while True:
        before = np.count_nonzero(reached_T)
        last_T = np.maximum.accumulate(np.where(reached_T, np.arange(plan.length), -1))  # The last one up to each row.
        last = np.where(q1 > q0, last_T[np.maximum(q1, 1) - 1] if plan.length else -1, -1)
        seeing = last >= q0
        stops = np.where(causal, last + 1, k1)
        edges_T = np.zeros(plan.length + 1, dtype=np.int64)
        np.add.at(edges_T, k0[seeing], 1)
        np.add.at(edges_T, stops[seeing], -1)
        reached_T |= edges_T[:-1].cumsum() > 0
        if np.count_nonzero(reached_T) == before:
            return reached_T


def restrict(plan: Plan, kept_T: np.ndarray) -> Plan:
    """The plan of some rows of a row: they see each other as before, at the same positions. It names no segments.

    Args:
        plan: The row.
        kept_T: bool. Closed under visibility, as `influence_rows` gives it: no kept row sees one that is not.
    """
    places_T = np.concatenate([[0], np.cumsum(kept_T)])  # Number of kept rows before each row.
    rows = np.flatnonzero(kept_T)
    before_T = plan.predecessors_T[rows]
    invariant(bool(kept_T[before_T[before_T >= 0]].all()), "rows are kept whose predecessors are not")
    return Plan(
        tokens_T=plan.tokens_T[rows],
        positions_T=plan.positions_T[rows],
        subtree_ends_T=places_T[plan.subtree_ends_T[rows]],
        predecessors_T=np.where(before_T >= 0, places_T[before_T], -1),
        slices=tuple(piece for whole in plan.slices if (piece := _restricted(whole, places_T)).pairs),
        starts={},  # Of a segment only some rows may be left; whoever asks for one by its place would be misled.
        wait_edges=tuple(
            (int(places_T[awaited]), int(places_T[waiter]))
            for awaited, waiter in plan.wait_edges
            if kept_T[awaited] and kept_T[waiter]
        ),
    )


def _restricted(whole: Slice, places_T: np.ndarray) -> Slice:
    invariant(not whole.mirrored, "plans of windowed layers are made from restricted plans, not restricted")
    q0, q1, k0, k1 = places_T[[whole.q0, whole.q1, whole.k0, whole.k1]].tolist()
    return replace(whole, q0=q0, q1=q1, k0=k0, k1=k1)
