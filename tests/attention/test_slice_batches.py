"""Slices in batches: which go together, and that padding and batch edges change nothing."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
import torch
from numeric import assert_equals_reference, make_plan, make_rope, random_inputs, random_plan, with_gradients

from octopus.attention import slice_batches, sliced
from octopus.attention.plan import Plan, Slice
from octopus.attention.slice_batches import group_slices
from octopus.attention.sliced import attend_sliced

EDGES = (1, 2, 63, 64, 65, 128, 129)
CHECK = {"kv_heads": 1, "group": 2, "head_dim": 4}


def segments_plan(lengths: list[int], mounts: list[tuple[int, int, int]]) -> Plan:
    """Roots of some lengths; in each of `mounts`, one segment sees the whole of another moved by a shift."""
    starts = [0, *itertools.accumulate(lengths)]
    spans = list(itertools.pairwise(starts))
    squares = [Slice(q0=a, q1=b, k0=a, k1=b, causal=True, shift=0) for a, b in spans]
    rectangles = [
        Slice(q0=spans[q][0], q1=spans[q][1], k0=spans[k][0], k1=spans[k][1], causal=False, shift=shift)
        for q, k, shift in mounts
    ]
    # Squares come last, so that nothing depends on an order that the plan does not promise.
    return make_plan([i for length in lengths for i in range(length)], rectangles + squares)


def sizes(slices: list[Slice]) -> tuple[list[int], list[int]]:
    return [s.q1 - s.q0 for s in slices], [s.k1 - s.k0 for s in slices]


@pytest.mark.parametrize("shift", [0, 9])
def test_lengths_around_bucket_edges(shift: int) -> None:
    """Catches: padded keys left visible, padded rows that add to the gradients of keys or are written back.

    Also a bucket that is padded to less than its longest slice, and causal squares cut at another's length.
    """
    lengths = [*EDGES, *EDGES]
    count = len(EDGES)
    mounts = [(q, k, shift) for q, k in itertools.product(range(count), range(count, 2 * count))]
    plan = segments_plan(lengths, mounts)
    padded = [batch for batch in group_slices(plan) if any(len(set(lengths)) > 1 for lengths in sizes(batch))]
    assert {batch[0].causal for batch in padded} == {True, False}
    assert_equals_reference(plan, **CHECK, rope=make_rope(4))


@pytest.mark.parametrize("length", EDGES)
def test_slices_of_one_length_side_by_side(length: int) -> None:
    """Catches: the blocks of a batch mixed up with the heads of a group, or with each other."""
    shifts = [0, -3, 200]
    plan = segments_plan([length] * 6, [(q, q + 3, shifts[q]) for q in range(3)])
    assert max(len(batch) for batch in group_slices(plan)) == 6
    assert_equals_reference(plan, kv_heads=2, group=3, head_dim=4, rope=make_rope(4))


def test_a_row_in_several_slices_of_one_bucket() -> None:
    """Catches: partial results that overwrite each other instead of being merged, and gradients likewise."""
    plan = segments_plan([5] * 6, [(0, k, 10 * k) for k in range(1, 6)])
    assert [len(batch) for batch in group_slices(plan)] == [6, 1, 1, 1, 1, 1]
    assert_equals_reference(plan, **CHECK, rope=make_rope(4))


def test_a_key_in_several_slices_of_one_bucket() -> None:
    """Catches: gradients of a key added in no particular order, or all but one lost."""
    plan = segments_plan([5] * 6, [(q, 0, 10 * q) for q in range(1, 6)])
    assert [len(batch) for batch in group_slices(plan)] == [6, 1, 1, 1, 1, 1]
    assert_equals_reference(plan, **CHECK, rope=make_rope(4))


@pytest.mark.parametrize("batch_pairs", [1, 300, 2**20])
@pytest.mark.parametrize("small_pairs", [0, 70, 2**16])
def test_large_slices_among_small_ones(
    small_pairs: int, batch_pairs: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Catches: causal results written over those of a large slice, a slice lost where a batch is cut."""
    monkeypatch.setattr(slice_batches, "SMALL_PAIRS", small_pairs)
    monkeypatch.setattr(slice_batches, "BATCH_PAIRS", batch_pairs)
    lengths = [9, 8, 7, 3, 9, 8, 20]
    plan = segments_plan(lengths, [(6, 0, 0), (1, 6, 5), (0, 6, -2), (2, 3, 0), (3, 2, 1), (4, 5, 0)])
    assert_equals_reference(plan, **CHECK, rope=make_rope(2))
    for seed in range(3):
        assert_equals_reference(random_plan(seed, longest=12), **CHECK, rope=make_rope(4))


@pytest.mark.parametrize("bounds", [(2**16, 2**20), (30, 60)])
@pytest.mark.parametrize("seed", range(10))
def test_batches_keep_their_promises(
    seed: int, bounds: tuple[int, int], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Catches: a slice left out or done twice, rows or keys shared, kinds mixed, a bound on memory not kept.

    Also causal slices that come after others have been merged.
    """
    monkeypatch.setattr(slice_batches, "SMALL_PAIRS", bounds[0])
    monkeypatch.setattr(slice_batches, "BATCH_PAIRS", bounds[1])
    plan = random_plan(seed, segments=30, longest=9)
    batches = list(group_slices(plan))
    assert sorted(map(repr, itertools.chain(*batches))) == sorted(map(repr, plan.slices))
    for batch in batches:
        assert len({(s.causal, s.shift == 0) for s in batch}) == 1
        rows, keys = sizes(batch)
        for first, last in (("q0", "q1"), ("k0", "k1")):
            seen = np.concatenate([np.arange(getattr(s, first), getattr(s, last)) for s in batch])
            assert len(np.unique(seen)) == len(seen)
        if len(batch) > 1:
            assert max(r * k for r, k in zip(rows, keys, strict=True)) <= bounds[0]
            assert len(batch) * max(rows) * max(keys) <= bounds[1]
    causal = [batch[0].causal for batch in batches]
    assert causal == sorted(causal, reverse=True)


def test_slices_without_a_pair_are_nothing() -> None:
    """Catches: a maximum over no keys, which is an error or -inf minus -inf."""
    empty = [
        Slice(q0=0, q1=0, k0=0, k1=3, causal=False, shift=0),
        Slice(q0=0, q1=3, k0=3, k1=3, causal=False, shift=4),
        Slice(q0=2, q1=2, k0=2, k1=2, causal=True, shift=0),
    ]
    assert list(group_slices(make_plan([0, 1, 2], empty))) == []


def test_padding_reads_nothing_beside_its_slice() -> None:
    """Catches: padding that reads whatever rows follow; a NaN there would come through 0 * NaN."""
    plan = segments_plan([3, 1, 6, 1, 2, 1, 6, 1], [(0, 4, 3), (2, 6, 5)])
    blind = [3, 10, 13, 20]
    slices = [s for s in plan.slices if s.q0 not in blind]
    plan = make_plan(plan.positions_T.tolist(), slices)
    inputs = random_inputs(plan.length, kv_heads=1, group=2, head_dim=4)
    options = {"plan": plan, "rope": make_rope(4), "scale": 0.5}
    before = with_gradients(attend_sliced, *inputs, **options)
    for x_XTD in inputs[:3]:
        x_XTD[:, blind] = torch.nan
    for a, b in zip(with_gradients(attend_sliced, *inputs, **options), before, strict=True):
        assert torch.equal(a, b)


def test_a_plan_is_indexed_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Catches: an index made anew for every layer and backward pass, or used on another device or for other heads."""
    made = []
    honest = sliced.make_batch
    monkeypatch.setattr(
        sliced, "make_batch", lambda *args, **options: made.append(1) or honest(*args, **options)
    )
    plan = random_plan(3)
    inputs = random_inputs(plan.length, kv_heads=1, group=2, head_dim=4)
    options = {"plan": plan, "rope": make_rope(4), "scale": 0.5}
    with_gradients(attend_sliced, *inputs, **options)
    once = len(made)
    assert once == len(list(group_slices(plan)))
    for _ in range(2):
        with_gradients(attend_sliced, *inputs, **options)
    assert len(made) == once
    results = with_gradients(attend_sliced, *(x.to("meta") for x in inputs), **options)
    assert {x.device.type for x in results} == {"meta"}
    assert_equals_reference(plan, kv_heads=1, group=3, head_dim=4, rope=make_rope(4))
