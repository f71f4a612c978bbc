"""What surrounds the libraries' kernels: copies of shifted keys, calls, joining, folding back, as an operator."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import pairwise

import numpy as np
import pytest
import torch
from dense_engine import dense_engine
from numeric import (
    RESULTS,
    causal_plan,
    make_plan,
    make_rope,
    random_inputs,
    random_plan,
    with_gradients,
)
from torch.utils.checkpoint import checkpoint

from octopus.attention.exports import dense_view
from octopus.attention.libraries import ops
from octopus.attention.libraries.calls import calls
from octopus.attention.libraries.engines import ENGINES
from octopus.attention.libraries.intervals import row_endpoints
from octopus.attention.libraries.kernel import LibraryPass
from octopus.attention.libraries.key_table import key_table
from octopus.attention.libraries.ops import attend_by_library
from octopus.attention.plan import Plan, Slice
from octopus.attention.reference import attend_reference
from octopus.attention.windowed import windowed
from octopus.core.errors import BackendUnavailable

PLANS = 150


def visible_keys(ends_ET: np.ndarray, row: int) -> Iterator[range]:
    """The key intervals of one row, empty ones left out: `row_endpoints` read back."""
    ends = [0, *ends_ET[:, row].tolist()]
    yield from (range(a, b) for a, b in zip(ends[::2], ends[1::2], strict=True) if a < b)


@pytest.fixture
def engine() -> Iterator[str]:
    with dense_engine() as name:
        yield name


def some_plan(seed: int) -> Plan:
    plan = random_plan(seed, segments=9, longest=7)
    return windowed(plan, 1 + seed % 9) if seed % 2 else plan


def test_outputs_and_gradients_equal_the_reference(engine: str) -> None:
    """Catches: a pair computed twice or never, a copy at a wrong position, its gradient lost or not rotated back."""
    for seed in range(PLANS):
        plan = some_plan(seed)
        inputs = random_inputs(plan.length, kv_heads=2, group=2, head_dim=6, seed=seed)
        options = {"plan": plan, "rope": make_rope(4) if seed % 3 else None, "scale": 0.4}
        expected = with_gradients(attend_reference, *inputs, **options)
        actual = with_gradients(attend_by_library, *inputs, **options, name=engine)
        for name, a, b in zip(RESULTS, actual, expected, strict=True):
            torch.testing.assert_close(
                a, b, rtol=0, atol=1e-12, msg=lambda text, name=name, seed=seed: f"plan {seed}, {name}: {text}"
            )


@pytest.mark.parametrize("rotates", [True, False])
def test_endpoints_say_what_the_slices_say(rotates: bool) -> None:
    """Catches: endpoints of a neighbour's stretch, an open first interval, mirrored rows taken for whole ones."""
    for seed in range(PLANS):
        plan = some_plan(seed)
        table = key_table(plan, rotates=rotates, gathers=bool(seed % 4 < 2))
        ends_ET = row_endpoints(table)
        assert len(ends_ET) % 2 == 1 and ends_ET.dtype == np.int32
        assert (np.diff(ends_ET, axis=0) >= 0).all()
        visible_TT, positions_TT = dense_view(plan)
        for row in range(plan.length):
            keys = [key for interval in visible_keys(ends_ET, row) for key in interval]
            seen = sorted((int(table.rows_L[key]), int(table.positions_L[key]) if rotates else 0) for key in keys)
            expected = [(int(k), int(positions_TT[row, k]) if rotates else 0) for k in np.flatnonzero(visible_TT[row])]
            assert seen == expected, f"plan {seed}, row {row}"


def test_calls_hold_each_pair_once_and_repeat_no_row() -> None:
    """Catches: triangles joined though a row between them does not see all, blocks of a call that overlap."""
    for seed in range(PLANS):
        plan = some_plan(seed)
        table = key_table(plan, rotates=True, gathers=bool(seed % 4 < 2))
        seen = np.zeros((plan.length, len(table.rows_L)), dtype=np.int64)
        for call in calls(table.slices):
            size = call.queries.rows, call.keys.rows
            block = np.tri(*size) if call.causal else np.tri(*size).T if call.mirrored else np.ones(size)
            rows, keys = set(), set()
            for b in range(call.queries.count):
                q0, k0 = call.queries.start + b * call.queries.step, call.keys.start + b * call.keys.step
                seen[q0 : q0 + size[0], k0 : k0 + size[1]] += block.astype(np.int64)
                rows |= set(range(q0, q0 + size[0]))
                keys |= set(range(k0, k0 + size[1]))
            assert len(rows) == size[0] * call.queries.count and len(keys) == size[1] * call.keys.count
        expected = np.zeros_like(seen)
        for s in table.slices:
            block = np.tri(s.q1 - s.q0) if s.causal else np.tri(s.q1 - s.q0).T if s.mirrored else 1
            expected[s.q0 : s.q1, s.k0 : s.k1] += np.array(block, dtype=np.int64)
        np.testing.assert_array_equal(seen, expected)


def test_one_path_in_many_segments_is_one_call() -> None:
    """Catches: a chain of turns computed piece by piece."""
    ends = [0, 3, 4, 9, 20]
    squares = [Slice(q0=a, q1=b, k0=a, k1=b, causal=True, shift=0) for a, b in pairwise(ends)]
    above = [Slice(q0=b, q1=20, k0=a, k1=b, causal=False, shift=0) for a, b in pairwise(ends[:-1])]
    assert len(calls([*squares, *above])) == 1


def test_equal_siblings_are_one_call_and_shared_parts_are_copied_once() -> None:
    """Catches: a call for each sibling, a copy for each reader of one part at one shift."""
    squares = [Slice(q0=4 * i, q1=4 * i + 4, k0=4 * i, k1=4 * i + 4, causal=True, shift=0) for i in range(6)]
    mounts = [Slice(q0=4 * i, q1=4 * i + 4, k0=20, k1=23, causal=False, shift=7) for i in range(4)]
    table = key_table(make_plan([0, 1, 2, 3] * 6, [*mounts, *squares]), rotates=True)
    assert len(table.rows_L) == 24 + 3
    assert sorted(call.queries.count for call in calls(table.slices)) == [1, 6]


def test_poison_that_a_row_does_not_see(engine: str) -> None:
    """Catches: a hidden slot that reaches a row, to the bit; a NaN in a slot nobody sees that reaches anything."""
    plan = random_plan(5, segments=9, longest=7)
    visible_TT, _ = dense_view(plan)
    inputs = random_inputs(plan.length, kv_heads=2, group=2, head_dim=6)
    options = {"plan": plan, "rope": make_rope(4), "scale": 0.4, "name": engine}
    out_HTD, *_ = with_gradients(attend_by_library, *inputs, **options)
    for key in range(plan.length):
        q_HTD, k_GTD, v_GTD, d_out_HTD = (x.clone() for x in inputs)
        k_GTD[:, key] = v_GTD[:, key] = 1e4 if visible_TT[:, key].any() else torch.nan
        again_HTD, *gradients = with_gradients(attend_by_library, q_HTD, k_GTD, v_GTD, d_out_HTD, **options)
        blind_N = torch.from_numpy(~visible_TT[:, key])
        assert torch.equal(again_HTD[:, blind_N], out_HTD[:, blind_N])
        assert not any(x.isnan().any() for x in gradients)


def test_compiled_checkpointed_and_as_an_operator(engine: str) -> None:
    """Catches: a shape or stride that the operator's fake form promises and its real form does not keep."""
    plan, rope = random_plan(3, segments=9, longest=7), make_rope(4)
    qkv = [x.requires_grad_() for x in random_inputs(plan.length, kv_heads=2, group=2, head_dim=6)[:3]]

    def layer(*tensors: torch.Tensor) -> torch.Tensor:
        out_HTD, _ = attend_by_library(*tensors, plan=plan, rope=rope, scale=0.4, name=engine)
        return out_HTD.sin()

    expected = torch.autograd.grad(layer(*qkv).sum(), qkv)
    for ways in (torch.compile(layer, backend="aot_eager", fullgraph=True), _checkpointed(layer)):
        for a, b in zip(torch.autograd.grad(ways(*qkv).sum(), qkv), expected, strict=True):
            torch.testing.assert_close(a, b, rtol=0, atol=1e-14)
    slices_S7, positions_T = ops._tensors(plan)
    torch.library.opcheck(
        ops._attend, (*qkv, slices_S7, positions_T, rope.inverse_frequencies_R, 0.4, engine)
    )


def test_a_plan_is_made_anew_from_its_slices(engine: str) -> None:
    """Catches: a compiled graph that carries copies of the plan's tensors and finds no plan, or another's."""
    plan, rope = random_plan(7), make_rope(4)
    q_HTD, k_GTD, v_GTD, _ = random_inputs(plan.length, kv_heads=1, group=2, head_dim=4)
    tensors = [x.clone() for x in ops._tensors(plan)]
    out_HTD, _ = ops._attend(q_HTD, k_GTD, v_GTD, *tensors, rope.inverse_frequencies_R, 0.5, engine)
    expected_HTD, _ = attend_reference(q_HTD, k_GTD, v_GTD, plan=plan, rope=rope, scale=0.5)
    torch.testing.assert_close(out_HTD, expected_HTD, rtol=0, atol=1e-13)


def test_a_plan_is_lowered_once(engine: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Catches: lowering repeated by every layer or by the backward pass."""
    made, honest = [], LibraryPass.of
    monkeypatch.setattr(LibraryPass, "of", lambda *args: made.append(1) or honest(*args))
    options = {"plan": causal_plan(5), "rope": make_rope(4), "scale": 1.0, "name": engine}
    for _ in range(3):
        with_gradients(attend_by_library, *random_inputs(5, kv_heads=1, group=1, head_dim=4), **options)
    assert len(made) == 1


@pytest.mark.parametrize("name", ["cudnn", *ENGINES])
def test_a_backend_that_cannot_run_says_why(name: str) -> None:
    """Catches: a silent way round, or an error from deep inside a library."""
    q_HTD, k_GTD, v_GTD, _ = random_inputs(5, kv_heads=1, group=1, head_dim=8)
    with pytest.raises(BackendUnavailable, match=f"{name}.*(not installed|GPU)"):
        attend_by_library(q_HTD, k_GTD, v_GTD, plan=causal_plan(5), rope=None, scale=1.0, name=name)


def _checkpointed(layer: object) -> object:
    return lambda *tensors: checkpoint(layer, *tensors, use_reentrant=False)
