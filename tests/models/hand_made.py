"""Packs and steps made by hand, without the graph: a tree of branches, its plan, and its replay over a paged store."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch
from tiny_models import VOCABULARY

from octopus.attention.exports import dense_view
from octopus.attention.plan import Plan, Slice
from octopus.attention.step_plan import KeyRange, StepPlan, StepRun
from octopus.core.storage.kv import KVStorage
from octopus.models.backbone import Backbone


@dataclass(frozen=True, kw_only=True)
class Branch:
    """`length` tokens behind the first `fork` tokens of branch `parent`; mounts are (branch, start, stop, shift)."""

    length: int
    parent: int = -1
    fork: int = 0
    mounts: tuple[tuple[int, int, int, int], ...] = ()


# In pre-order, siblings by decreasing fork length. Branch 2 is one token long (shorter than the convolution) and
# branch 4 leaves the middle of the trunk.
TREE = (
    Branch(length=9),
    Branch(length=7, parent=0, fork=9),
    Branch(length=1, parent=1, fork=3),
    Branch(length=6, parent=0, fork=9),
    Branch(length=4, parent=0, fork=5),
)
# The same, but branch 3 mounts tokens 2..6 of branch 1 (positions 11..15) at positions 9..13 and resumes at 14.
WITH_MOUNT = (*TREE[:3], Branch(length=6, parent=0, fork=9, mounts=((1, 2, 7, -2),)), TREE[4])


def plan_of(branches: tuple[Branch, ...], seed: int = 0) -> Plan:
    """Lays the branches out in the order given. A branch's slices are its own: nothing is merged over subtrees."""
    firsts = np.cumsum([0, *(branch.length for branch in branches)])
    positions, before, slices = [], [], []
    ends = np.arange(firsts[-1]) + 1
    for first, branch in zip(firsts, branches, strict=False):
        rows = {"q0": int(first), "q1": int(first) + branch.length}
        slices.append(Slice(**rows, k0=rows["q0"], k1=rows["q1"], causal=True, shift=0))
        ends[rows["q0"] : rows["q1"]] = rows["q1"]
        last = -1
        for above, stop in reversed(_line(branches, branch)):
            k0, k1 = int(firsts[above]), int(firsts[above]) + stop
            slices.append(Slice(**rows, k0=k0, k1=k1, causal=False, shift=0))
            ends[k0:k1] = rows["q1"]
            last = k1 - 1
        for source, start, stop, shift in branch.mounts:
            k0, k1 = int(firsts[source]) + start, int(firsts[source]) + stop
            slices.append(Slice(**rows, k0=k0, k1=k1, causal=False, shift=shift))
        mounted = sum(stop - start for _, start, stop, _ in branch.mounts)
        resume = positions[last] + 1 + mounted if last >= 0 else 0
        positions += range(resume, resume + branch.length)
        before += [last, *range(rows["q0"], rows["q1"] - 1)][: branch.length]
    return Plan(
        tokens_T=np.random.default_rng(seed).integers(0, VOCABULARY, firsts[-1]),
        positions_T=np.array(positions, dtype=np.int64),
        subtree_ends_T=ends,
        predecessors_T=np.array(before, dtype=np.int64),
        slices=tuple(slices),
        starts={},
        wait_edges=(),
    )


def _line(branches: tuple[Branch, ...], branch: Branch) -> list[tuple[int, int]]:
    """The branches above, nearest first, and how many tokens of each are on the path."""
    line = []
    while branch.parent >= 0:
        line.append((branch.parent, branch.fork))
        branch = branches[branch.parent]
    return line


def path_of(plan: Plan, row: int) -> list[int]:
    """The rows from the root to `row`."""
    path = [row]
    while plan.predecessors_T[path[0]] >= 0:
        path.insert(0, int(plan.predecessors_T[path[0]]))
    return path


def chain_of(tokens: np.ndarray) -> Plan:
    """One causal chain of these tokens."""
    plan = plan_of((Branch(length=len(tokens)),))
    plan.tokens_T[:] = tokens
    return plan


class Replay:
    """Runs the rows of a plan as steps over a store that holds NaN wherever nothing was written."""

    def __init__(self, backbone: Backbone, plan: Plan) -> None:
        self.backbone, self.plan = backbone, plan
        slots = 2 * plan.length
        self.storage = KVStorage(
            backbone.kv_shape, num_slots=slots, num_states=slots, dtype=backbone.dtype, device="cpu"
        )
        for store in (self.storage.keys, self.storage.values, self.storage.conv, self.storage.recurrent):
            store.fill_(torch.nan)
        self.slots_T = np.random.default_rng(1).permutation(slots)[: plan.length]
        self.state_of_row = {-1: -1}
        self.hidden: dict[int, torch.Tensor] = {}

    def step(self, *spans: tuple[int, int]) -> StepPlan:
        """Computes the rows `[start, stop)` of each span as one batch and keeps their hidden states."""
        step = self.lower(*spans)
        hidden_TC = self.backbone.paged(step, self.storage)
        self.hidden.update(zip([row for span in spans for row in range(*span)], hidden_TC, strict=True))
        return step

    def lower(self, *spans: tuple[int, int], recompute: bool = False) -> StepPlan:
        """The batch of these spans; every run leaves its state in a fresh slot."""
        rows = np.array([row for span in spans for row in range(*span)])
        runs, start = [], 0
        for first, stop in spans:
            self.state_of_row[stop - 1] = state_out = len(self.state_of_row)
            runs.append(
                StepRun(
                    start=start,
                    stop=start + stop - first,
                    keys=self._seen_by(first),
                    own=KeyRange(
                        source="plan", start=first, slots_K=self.slots_T[first:stop],
                        seen_at=int(self.plan.positions_T[first]), shift=0,
                    ),
                    state_in=self.state_of_row[int(self.plan.predecessors_T[first])],
                    state_out=state_out,
                )
            )
            start += stop - first
        return StepPlan(
            tokens_T=self.plan.tokens_T[rows],
            positions_T=self.plan.positions_T[rows],
            slots_T=np.full_like(rows, -1) if recompute else self.slots_T[rows],
            runs=tuple(runs),
        )

    def _seen_by(self, row: int) -> tuple[KeyRange, ...]:
        visible_TT, effective_TT = dense_view(self.plan)
        keys = np.flatnonzero(visible_TT[row])
        keys = keys[keys != row]
        keys = keys[np.argsort(effective_TT[row, keys])]
        shifts = effective_TT[row, keys] - self.plan.positions_T[keys]
        return tuple(
            KeyRange(
                source="plan", start=int(key), slots_K=self.slots_T[[key]], seen_at=int(effective_TT[row, key]),
                shift=int(shift),
            )
            for key, shift in zip(keys, shifts, strict=True)
        )

    def hidden_TC(self) -> torch.Tensor:
        """The hidden states of all rows, in the plan's order."""
        return torch.stack([self.hidden[row] for row in range(self.plan.length)])
