"""Paged attention over a store, step by step as a rollout goes, against the packed reference over the whole graph.

Letters: T rows, S slots, N rows of a run, H query heads, G key/value heads, D head dimension.
"""

from __future__ import annotations

import random
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import pytest
import torch
from numeric import make_rope, random_inputs
from torch import Tensor

from octopus.attention import paged
from octopus.attention.backends import attend
from octopus.attention.exports import dense_view
from octopus.attention.paged import StepIndex, StepRows, attend_paged, write_paged
from octopus.attention.plan import Plan, lower
from octopus.attention.step_plan import SlotTable, StepPlan, lower_step
from octopus.attention.windowed import windowed
from octopus.core.errors import InvariantViolation
from octopus.core.graph import Graph
from octopus.core.mount import PLACEMENTS
from octopus.core.pool import NO_PAGE, PagePool
from octopus.core.schedule import Stretch
from octopus.core.segment import Segment

PAGE = 4
PAGES = 200
WINDOWS = (1, 2, PAGE - 1, PAGE, PAGE + 1, 10_000, None)
ROPE, SCALE = make_rope(4), 0.4


@dataclass
class Rollout:
    """A graph and the batches, in time order, in which its tokens were computed."""

    graph: Graph
    steps: list[tuple[list[Stretch], StepPlan]]


def rollout(seed: int, *, turns: int = 12) -> Rollout:
    """Threads that fork, read each other and write up to two pages at a time; several are computed in one step."""
    rng = random.Random(seed)
    graph, steps = Graph(pages=PagePool(PAGES, page_size=PAGE)), []
    threads = [graph.thread()]
    graph.append(threads[0], [1] * rng.randint(1, 2 * PAGE))
    for _ in range(turns):
        threads += graph.fork(rng.choice(threads))
        readers = rng.sample(threads, min(3, len(threads)))
        for reader in readers:
            if rng.random() < 0.7:
                last = rng.choice([None, 1, PAGE])
                graph.read_thread(reader, rng.choice(threads), last=last, placement=rng.choice(PLACEMENTS))
            graph.append(reader, [1] * rng.choice([1, 1, PAGE, 2 * PAGE + 1]))
        with graph.begin_step(threads, chunk_tokens=PAGE + 2) as step:
            for wave in step.waves:
                steps.append((wave, lower_step([(s, step.state_move(s)) for s in wave], page_size=PAGE)))
                for stretch in wave:
                    step.publish(stretch)
    return Rollout(graph, steps)


def rows_of(stretches: list[Stretch], plan: Plan) -> np.ndarray:
    """The rows of the whole graph's plan that a batch computes, in its order."""
    return np.concatenate([plan.starts[s.segment] + np.arange(s.start, s.stop) for s in stretches])


def played(
    made: Rollout, plan: Plan, inputs: tuple[Tensor, ...], window: int | None
) -> Iterator[tuple[np.ndarray, Tensor, Tensor, Tensor, StepIndex]]:
    """For each batch its rows, their queries, the store (NaN where nothing was written), and the index."""
    q_HTD, k_GTD, v_GTD, _ = inputs
    store_SGD = torch.full((PAGES * PAGE, len(k_GTD), k_GTD.shape[-1]), torch.nan, dtype=k_GTD.dtype)
    keys_SGD, values_SGD = store_SGD, store_SGD.clone()
    for stretches, step in made.steps:
        rows = rows_of(stretches, plan)
        index = StepIndex.of(step, torch.device("cpu"), window=window)
        written = StepRows.of(step, torch.device("cpu"))
        write_paged(keys_SGD, values_SGD, k_GTD[:, rows], v_GTD[:, rows], rows=written, rope=ROPE)
        yield rows, q_HTD[:, rows], keys_SGD, values_SGD, index


@pytest.mark.parametrize("window", WINDOWS)
def test_steps_equal_the_packed_reference(window: int | None) -> None:
    """Catches: a window measured where a mount was written, or from a run's last row; a key lost at a page's edge.

    Also later rows of a run that go on seeing what only its first row sees, and a mask in another order than the keys.
    """
    for seed in range(5):
        made = rollout(seed)
        plan = lower(made.graph.segments)
        inputs = random_inputs(plan.length, kv_heads=2, group=2, head_dim=6, seed=seed)
        expected_HTD, _ = attend(
            *inputs[:3], plan=plan, rope=ROPE, scale=SCALE, backend="reference", window=window
        )
        for rows, q_HTD, keys_SGD, values_SGD, index in played(made, plan, inputs, window):
            out_HTD = attend_paged(q_HTD, keys_SGD, values_SGD, index=index, rope=ROPE, scale=SCALE)
            torch.testing.assert_close(out_HTD, expected_HTD[:, rows], rtol=0, atol=1e-12, msg=f"rollout {seed}")


def test_the_rollouts_reach_the_edges() -> None:
    """Catches: a generator gone dull. Prefill and decode, shifted parts cut by a window, rows leaving keys behind."""
    made = rollout(0)
    runs = [run for _, step in made.steps for run in step.runs]
    assert {1, PAGE + 2} <= {run.stop - run.start for run in runs}
    cut, left = set(), set()
    for _, step in made.steps:
        whole, near = (StepIndex.of(step, torch.device("cpu"), window=window) for window in (None, PAGE + 1))
        for before, after in zip(whole.runs, near.runs, strict=True):
            shifted = [sum(len(slots_K) for slots_K, shift in run.parts if shift) for run in (before, after)]
            cut.add((shifted[0] > shifted[1], shifted[1] > 0))
            left.add(after.left_NK is None)
    assert cut == {(False, False), (False, True), (True, False), (True, True)}
    assert left == {True, False}


@pytest.mark.parametrize("window", [1, PAGE, PAGE + 1])
def test_slots_that_no_row_of_a_run_sees_are_not_read(window: int) -> None:
    """Catches: a page outside the window that is gathered and masked, whose NaN would come through 0 * NaN."""
    made = rollout(1)
    plan = lower(made.graph.segments)
    near_TT, _ = dense_view(windowed(plan, window))
    inputs = random_inputs(plan.length, kv_heads=2, group=2, head_dim=6)
    slots_T, spared = np.full(plan.length, -1), 0
    batches = zip(played(made, plan, inputs, window), made.steps, strict=True)
    for (rows, q_HTD, keys_SGD, values_SGD, index), (_, step) in batches:
        slots_T[rows] = step.slots_T
        for run in index.runs:
            seen = slots_T[near_TT[rows[run.start : run.stop]].any(0)]
            assert sorted(torch.cat([slots_K for slots_K, _ in run.parts]).tolist()) == sorted(seen.tolist())
        read = torch.cat([slots_K for run in index.runs for slots_K, _ in run.parts]).unique()
        clean = attend_paged(q_HTD, keys_SGD, values_SGD, index=index, rope=ROPE, scale=SCALE)
        poisoned = [torch.full_like(store_SGD, torch.nan) for store_SGD in (keys_SGD, values_SGD)]
        for store_SGD, source_SGD in zip(poisoned, (keys_SGD, values_SGD), strict=True):
            store_SGD[read] = source_SGD[read]
        assert torch.equal(attend_paged(q_HTD, *poisoned, index=index, rope=ROPE, scale=SCALE), clean)
        assert not clean.isnan().any()
        spared += int((~keys_SGD[:, 0, 0].isnan()).sum()) - len(read)
    assert spared > 0


def test_what_rows_left_behind_stays_hidden_to_the_bit() -> None:
    """Catches: a mask added to scores, or one of another row."""
    made, window = rollout(2), 2
    plan = lower(made.graph.segments)
    inputs = random_inputs(plan.length, kv_heads=1, group=2, head_dim=6)
    checked = 0
    for _, q_HTD, keys_SGD, values_SGD, index in played(made, plan, inputs, window):
        clean = attend_paged(q_HTD, keys_SGD, values_SGD, index=index, rope=ROPE, scale=SCALE)
        for run in (run for run in index.runs if run.left_NK is not None):
            slots_K = torch.cat([slots_K for slots_K, _ in run.parts])
            key = int(run.left_NK.any(0).nonzero()[0])
            poisoned = [store_SGD.clone().index_fill_(0, slots_K[key], 1e4) for store_SGD in (keys_SGD, values_SGD)]
            out = attend_paged(q_HTD, *poisoned, index=index, rope=ROPE, scale=SCALE)
            blind = run.start + run.left_NK[:, key].nonzero().flatten()
            assert torch.equal(out[:, blind], clean[:, blind])
            checked += len(blind)
    assert checked > 10


@pytest.mark.parametrize(
    ("target", "fault"),
    [
        ("_left", lambda *_: None),
        ("_left", lambda *args, honest=paged._left: honest(*args[:2], args[2] + 1, args[3])),
        ("_hide_later_rows", lambda *_, **__: None),
    ],
    ids=["nothing left behind", "one more", "later rows seen"],
)
def test_planted_faults_are_seen(target: str, fault: object, monkeypatch: pytest.MonkeyPatch) -> None:
    """The test of the tests: each of these must break the comparison with the packed reference."""
    monkeypatch.setattr(paged, target, fault)
    with pytest.raises(AssertionError):
        test_steps_equal_the_packed_reference(PAGE)


@pytest.mark.parametrize("window", [0, -3])
def test_an_empty_window_is_refused(window: int) -> None:
    """Catches: a configuration's 0, which often means `none`, taken for a window."""
    _, step = rollout(0, turns=1).steps[0]
    with pytest.raises(ValueError, match=f"1 position or more, since a row sees itself; not {window}"):
        StepIndex.of(step, torch.device("cpu"), window=window)


def test_slots_of_pages_that_are_gone_are_refused() -> None:
    """Catches: a page that was given back read as one of the pool, or one beside it refused with it."""
    segment = Segment(index=0, parent=None, start_position=0, writer=0, opened_at=0, weights_version=0)
    segment.pages = [NO_PAGE, (5 << 32) + 7, 2]
    table = SlotTable(PAGE)
    assert table.slots(segment, 4, 11).tolist() == [28, 29, 30, 31, 8, 9, 10]
    with pytest.raises(InvariantViolation, match=r"a visible page of Segment\(0, 0 tokens\) was given back"):
        table.slots(segment, 3, 11)
    with pytest.raises(InvariantViolation, match=r"tokens \[8, 13\) of .* have no pages"):
        table.slots(segment, 8, 13)
