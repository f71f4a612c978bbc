"""The sliced backend against the specification. They share plan and rotation, not a line of attention or gradients."""

from __future__ import annotations

import math
from collections.abc import Callable

import pytest
import torch
from numeric import (
    RESULTS,
    OnlyFloat64,
    assert_equals_reference,
    causal_plan,
    make_plan,
    make_rope,
    random_inputs,
    random_plan,
    with_gradients,
)
from random_graphs import random_episode
from torch import Tensor

from octopus.attention import dense, sliced
from octopus.attention.backends import Backend
from octopus.attention.exports import dense_view
from octopus.attention.plan import Slice, lower
from octopus.attention.reference import attend_reference
from octopus.attention.sliced import attend_sliced


@pytest.mark.parametrize("head_dim", [32, 256])
@pytest.mark.parametrize("group", [1, 2, 7])
@pytest.mark.parametrize("seed", range(8))
def test_equals_the_reference(seed: int, group: int, head_dim: int) -> None:
    """Catches: shift lost or of the wrong sign, dq not rotated back, heads tiled.

    Also a slice's own log-sum-exp or output used in the backward pass, and gradients of a shared key overwritten
    instead of added.
    """
    rope = [make_rope(head_dim), make_rope(head_dim // 4), None][seed % 3]
    plan = random_plan(100 * head_dim + 10 * group + seed)
    assert_equals_reference(plan, kv_heads=2, group=group, head_dim=head_dim, rope=rope)


@pytest.mark.parametrize("seed", range(8))
def test_equals_the_reference_on_episodes(seed: int) -> None:
    """Catches: whatever holds for plans made up here and not for those that episodes are lowered to."""
    plan = lower(random_episode(seed, size=40).graph.segments)
    assert_equals_reference(plan, kv_heads=1, group=2, head_dim=8, rope=make_rope(4))


def test_the_random_plans_reach_the_hard_cases() -> None:
    """Catches: a generator gone dull, which would leave the test above green for nothing."""
    plans = [random_plan(seed) for seed in range(20)]
    shifts = {piece.shift for plan in plans for piece in plan.slices}
    assert min(shifts) < 0 < max(shifts)
    assert any(piece.k0 > piece.q1 for plan in plans for piece in plan.slices)
    assert any(not dense_view(plan)[0].any(axis=1).all() for plan in plans)
    assert any(plan.length % 2 for plan in plans)
    for plan in plans:
        pieces_T = torch.zeros(plan.length)
        for piece in plan.slices:
            pieces_T[piece.q0 : piece.q1] += 1
        assert pieces_T.max() >= 2


@pytest.mark.parametrize("length", [1, 2, 63, 64, 65])
def test_lengths_around_tile_edges(length: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Catches: a causal mask that forgets where its tile starts, keys cut at the wrong tile's end, a lost last tile."""
    monkeypatch.setattr(dense, "TILE_ROWS", 32)
    assert_equals_reference(causal_plan(length, 7), kv_heads=1, group=2, head_dim=8, rope=make_rope(4))


@pytest.mark.parametrize("seed", range(4))
def test_tiny_tiles_on_random_plans(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Catches: the same in blocks that are not square, where every row sees every key."""
    monkeypatch.setattr(dense, "TILE_ROWS", 2)
    assert_equals_reference(random_plan(seed), kv_heads=2, group=2, head_dim=8, rope=make_rope(8))


def tiled_heads(x_HNX: Tensor, kv_heads: int) -> Tensor:
    """Query head h reads key/value head h % G: the classic mistake."""
    return x_HNX.unflatten(0, (-1, kv_heads)).transpose(0, 1).flatten(1, 2)


def untiled_heads(x_GMX: Tensor, heads: int) -> Tensor:
    return x_GMX.unflatten(1, (heads // len(x_GMX), -1)).transpose(0, 1).flatten(0, 1)


def unweighted(a_out: Tensor, a_lse: Tensor, b_out: Tensor, b_lse: Tensor) -> tuple[Tensor, Tensor]:
    out = torch.where((a_lse == -torch.inf)[..., None], b_out, (a_out + b_out) / 2)
    return out, torch.logaddexp(a_lse, b_lse)


@pytest.mark.parametrize(
    "faults",
    [
        {(sliced, "query_positions"): lambda positions_N, shift: positions_N},
        {(sliced, "query_positions"): lambda positions_N, shift: positions_N + shift},
        {(dense, "group_heads"): tiled_heads, (dense, "ungroup_heads"): untiled_heads},
        {(sliced, "merge"): unweighted},
    ],
    ids=["shift lost", "shift of the wrong sign", "heads tiled", "merge unweighted"],
)
def test_planted_faults_are_seen(
    faults: dict[tuple[object, str], Callable[..., object]], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The test of the tests: each of these must break the comparison with the reference."""
    check = {"kv_heads": 2, "group": 2, "head_dim": 8, "rope": make_rope(4)}
    assert_equals_reference(random_plan(0), **check)
    for (module, name), fault in faults.items():
        monkeypatch.setattr(module, name, fault)
    with pytest.raises(AssertionError):
        # The same plan anew: the old one remembers where its queries stand.
        assert_equals_reference(random_plan(0), **check)


def test_gradients_equal_finite_differences() -> None:
    """Catches: a forward and a backward that are wrong together, and a scale missing from one of them."""
    plan = random_plan(2, segments=4, longest=3)
    inputs = [x.requires_grad_() for x in random_inputs(plan.length, kv_heads=1, group=2, head_dim=4)[:3]]
    options = {"plan": plan, "rope": make_rope(2), "scale": 0.3}
    assert torch.autograd.gradcheck(lambda *qkv: attend_sliced(*qkv, **options)[0], inputs)


@pytest.mark.parametrize("poison", [0.0, 1e4, -1e4])
@pytest.mark.parametrize("dtype", [torch.float64, torch.float32, torch.bfloat16])
def test_a_hidden_slot_changes_no_bit(dtype: torch.dtype, poison: float) -> None:
    """Catches: masks that add a large number, a running maximum over hidden scores, any leak through gradients.

    The loss is taken over the rows that do not see the slot, so no gradient at all may change.
    """
    plan = random_plan(11)
    visible_TT = torch.tensor(dense_view(plan)[0])
    options = {"plan": plan, "rope": make_rope(4), "scale": 0.35}
    for slot in range(plan.length):
        blind_T = ~visible_TT[:, slot]
        inputs = random_inputs(plan.length, kv_heads=2, group=2, head_dim=8, dtype=dtype)
        _, k_GTD, v_GTD, d_out_HTD = inputs
        d_out_HTD[:, ~blind_T] = 0
        before = with_gradients(attend_sliced, *inputs, **options)
        k_GTD[:, slot], v_GTD[:, slot] = poison, poison
        after = with_gradients(attend_sliced, *inputs, **options)
        for name, old, new in zip(RESULTS, before, after, strict=True):
            rows_T = blind_T if name in ("out", "lse") else torch.ones_like(blind_T)
            assert torch.equal(old[:, rows_T], new[:, rows_T]), name
        assert not after[3][:, slot].any() and not after[4][:, slot].any()
        if not blind_T.all():
            assert not torch.equal(before[1][:, ~blind_T], after[1][:, ~blind_T])


def test_visible_scores_may_be_very_low() -> None:
    """Catches: a large negative number in place of -inf, which beats scores that are lower still."""
    q_HTD, k_GTD, v_GTD, d_out_HTD = random_inputs(5, kv_heads=1, group=1, head_dim=4)
    q_HTD, k_GTD = q_HTD.abs() + 1, -k_GTD.abs() - 1
    options = {"plan": causal_plan(5), "rope": None, "scale": 1e6}
    expected = with_gradients(attend_reference, q_HTD, k_GTD, v_GTD, d_out_HTD, **options)
    actual = with_gradients(attend_sliced, q_HTD, k_GTD, v_GTD, d_out_HTD, **options)
    assert expected[1].max() < -1e6
    torch.testing.assert_close(actual[:2], expected[:2], rtol=1e-12, atol=1e-12)


def test_float64_stays_float64() -> None:
    """Catches: a float32 mask, angle, accumulator or softmax anywhere, backward included."""
    plan = random_plan(5)
    inputs = random_inputs(plan.length, kv_heads=1, group=2, head_dim=8)
    with OnlyFloat64():
        with_gradients(attend_sliced, *inputs, plan=plan, rope=make_rope(4), scale=0.35)


def test_the_float64_alarm_rings_in_the_backward_pass(monkeypatch: pytest.MonkeyPatch) -> None:
    """Catches: an alarm that is not on while gradients are computed."""
    honest = dense.backward
    monkeypatch.setattr(dense, "backward", lambda *args: tuple(x.float().double() for x in honest(*args)))
    inputs = random_inputs(5, kv_heads=1, group=2, head_dim=8)
    with OnlyFloat64(), pytest.raises(AssertionError, match=r"torch\.float32"):
        with_gradients(attend_sliced, *inputs, plan=causal_plan(5), rope=None, scale=0.35)


def test_bfloat16_is_rounded_once_at_the_end() -> None:
    """Catches: outputs merged, or gradients of a shared key added up, in bfloat16."""
    slices = [Slice(q0=q, q1=q + 4, k0=0, k1=4, causal=q == 0, shift=q) for q in range(0, 64, 4)]
    plan = make_plan(list(range(64)), slices)
    low = random_inputs(64, kv_heads=2, group=2, head_dim=8, dtype=torch.bfloat16)
    options = {"plan": plan, "rope": make_rope(4), "scale": 0.35}
    rounded = with_gradients(attend_sliced, *low, **options)
    exact = with_gradients(attend_sliced, *(x.float() for x in low), **options)
    assert rounded[1].dtype == torch.float32
    assert torch.equal(rounded[1], exact[1])
    for name in ("out", "dq", "dk", "dv"):
        at = RESULTS.index(name)
        assert rounded[at].dtype == torch.bfloat16
        assert torch.equal(rounded[at], exact[at].to(torch.bfloat16)), name


def test_far_positions_and_shifts_in_float32() -> None:
    """Catches: angles in float32, and queries rotated twice: both lose two digits at position 200,000."""
    slices = [
        Slice(q0=0, q1=4, k0=0, k1=4, causal=True, shift=0),
        Slice(q0=4, q1=8, k0=4, k1=8, causal=True, shift=0),
        Slice(q0=4, q1=8, k0=0, k1=4, causal=False, shift=199_990),
    ]
    plan = make_plan([0, 1, 2, 3, 200_000, 200_001, 200_002, 200_003], slices)
    inputs = random_inputs(8, kv_heads=1, group=2, head_dim=64, dtype=torch.float32)
    options = {"plan": plan, "rope": make_rope(64), "scale": 1.0}
    exact = with_gradients(attend_reference, *(x.double() for x in inputs), **options)
    for name, a, b in zip(RESULTS, with_gradients(attend_sliced, *inputs, **options), exact, strict=True):
        torch.testing.assert_close(
            a.double(), b, rtol=1e-5, atol=1e-4, msg=lambda text, name=name: f"{name}: {text}"
        )


@pytest.mark.parametrize("rows", [0, 3])
def test_packs_without_keys_are_legal(rows: int) -> None:
    """Catches: 0 / 0 or NaN where nothing is seen, in outputs and in gradients."""
    *qkv, d_out_HTD = random_inputs(rows, kv_heads=1, group=2, head_dim=4)
    plan = make_plan(list(range(rows)), [])
    out_HTD, lse_HT, *gradients = with_gradients(
        attend_sliced, *qkv, d_out_HTD, plan=plan, rope=make_rope(4), scale=1.0
    )
    assert torch.equal(out_HTD, torch.zeros_like(out_HTD))
    assert torch.equal(lse_HT, torch.full_like(lse_HT, -math.inf))
    assert not any(gradient.any() for gradient in gradients)


def test_a_causal_block_must_be_square() -> None:
    """Catches: causal masks aligned to one corner in the forward and to the other in the backward pass."""
    q_GBRND, k_GBKD, v_GBKD = torch.zeros(1, 1, 1, 2, 4), torch.zeros(1, 1, 5, 4), torch.zeros(1, 1, 5, 4)
    with pytest.raises(ValueError, match="must be square, not 2 rows by 5 keys"):
        dense.forward(q_GBRND, k_GBKD, v_GBKD, True, None)


def test_strided_inputs() -> None:
    """Catches: heads grouped by memory order instead of by index ([T, H, D] storage is what projections give)."""
    plan = random_plan(7)
    inputs = random_inputs(plan.length, kv_heads=2, group=2, head_dim=8)
    strided = [x.transpose(0, 1).contiguous().transpose(0, 1) for x in inputs]
    options = {"plan": plan, "rope": make_rope(4), "scale": 0.35}
    for a, b in zip(
        with_gradients(attend_sliced, *strided, **options),
        with_gradients(attend_sliced, *inputs, **options),
        strict=True,
    ):
        torch.testing.assert_close(a, b, rtol=0, atol=1e-13)


@pytest.mark.parametrize("attend", [attend_reference, attend_sliced])
def test_no_tensor_is_left_on_the_cpu(attend: Backend) -> None:
    """Catches: a mask or position made on the default device. The meta device stands for any accelerator."""
    plan = random_plan(5)
    inputs = [x.to("meta") for x in random_inputs(plan.length, kv_heads=1, group=2, head_dim=8)]
    results = with_gradients(attend, *inputs, plan=plan, rope=make_rope(4), scale=0.35)
    assert {x.device.type for x in results} == {"meta"}
