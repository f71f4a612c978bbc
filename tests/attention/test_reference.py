"""The specification against things simpler than itself."""

from __future__ import annotations

import math

import pytest
import torch
from numeric import (
    RESULTS,
    OnlyFloat64,
    causal_plan,
    make_plan,
    make_rope,
    random_inputs,
    random_plan,
    with_gradients,
)

from octopus.attention.exports import dense_view
from octopus.attention.plan import Slice
from octopus.attention.reference import attend_reference
from octopus.attention.rope import Rope


@pytest.mark.parametrize("group", [1, 2, 7])
def test_causal_attention_equals_the_library(group: int) -> None:
    """Catches: heads tiled instead of repeated, a lost scale, a causal mask off by one, keys rotated by index."""
    rope, plan = make_rope(8), causal_plan(9, start_position=100)
    q_HTD, k_GTD, v_GTD, _ = random_inputs(9, kv_heads=2, group=group, head_dim=12)
    out_HTD, _ = attend_reference(q_HTD, k_GTD, v_GTD, plan=plan, rope=rope, scale=0.3)
    positions_T = torch.arange(100, 109)
    expected_HTD = torch.nn.functional.scaled_dot_product_attention(
        rope.rotate(q_HTD, positions_T)[None],
        rope.rotate(k_GTD, positions_T)[None],
        v_GTD[None],
        is_causal=True,
        scale=0.3,
        enable_gqa=True,
    )[0]
    torch.testing.assert_close(out_HTD, expected_HTD, rtol=0, atol=1e-13)


def test_a_mount_equals_reading_the_text() -> None:
    """Catches: a mount that is not shifted, shifted the wrong way, or whose values are taken from elsewhere.

    Rows 0-1 are written, then rows 4-8 (a thread of its own, from position 50) are mounted behind them, then rows 2-3.
    """
    slices = [
        Slice(q0=0, q1=2, k0=0, k1=2, causal=True, shift=0),
        Slice(q0=2, q1=4, k0=0, k1=2, causal=False, shift=0),
        Slice(q0=2, q1=4, k0=2, k1=4, causal=True, shift=0),
        Slice(q0=2, q1=4, k0=4, k1=9, causal=False, shift=2 - 50),
        Slice(q0=4, q1=9, k0=4, k1=9, causal=True, shift=0),
    ]
    plan = make_plan([0, 1, 7, 8, 50, 51, 52, 53, 54], slices)
    q_HTD, k_GTD, v_GTD, _ = random_inputs(9, kv_heads=1, group=2, head_dim=8)
    out_HTD, lse_HT = attend_reference(q_HTD, k_GTD, v_GTD, plan=plan, rope=make_rope(8), scale=0.5)
    text = [0, 1, 4, 5, 6, 7, 8, 2, 3]
    out_text_HTD, lse_text_HT = attend_reference(
        q_HTD[:, text], k_GTD[:, text], v_GTD[:, text], plan=causal_plan(9), rope=make_rope(8), scale=0.5
    )
    torch.testing.assert_close(out_HTD[:, 2:4], out_text_HTD[:, 7:], rtol=0, atol=1e-13)
    torch.testing.assert_close(lse_HT[:, 2:4], lse_text_HT[:, 7:], rtol=0, atol=1e-13)


@pytest.mark.parametrize("rope", [None, make_rope(8)])
def test_a_zero_query_averages_what_it_sees(rope: Rope | None) -> None:
    """Catches: a hidden or doubled key, base-2 log-sum-exp: exp(lse) counts the visible keys."""
    plan = random_plan(3)
    visible_TT = torch.tensor(dense_view(plan)[0])
    q_HTD, k_GTD, v_GTD, _ = random_inputs(plan.length, kv_heads=1, group=1, head_dim=8)
    out_HTD, lse_HT = attend_reference(torch.zeros_like(q_HTD), k_GTD, v_GTD, plan=plan, rope=rope, scale=1.0)
    counts_T = visible_TT.sum(dim=1)
    torch.testing.assert_close(lse_HT[0].exp(), counts_T.double(), rtol=0, atol=1e-12)
    means_TD = visible_TT.double() @ v_GTD[0] / counts_T.clamp(min=1)[:, None]
    torch.testing.assert_close(out_HTD[0], means_TD, rtol=0, atol=1e-13)


@pytest.mark.parametrize("poison", [math.nan, math.inf, 1e4, 0.0])
@pytest.mark.parametrize("into", ["keys", "values", "both"])
def test_an_unseen_slot_changes_no_bit(poison: float, into: str) -> None:
    """Catches: masking by addition or multiplication, hidden keys that enter a matrix product with weight 0."""
    plan = random_plan(11)
    visible_TT = torch.tensor(dense_view(plan)[0])
    slot = int(visible_TT.sum(dim=0).argmax())
    blind_T = ~visible_TT[:, slot]
    # Slots whose every reader is blind to the poisoned one: nothing may reach their gradients either.
    clean_T = ~visible_TT[~blind_T].any(dim=0)
    assert blind_T.any() and (~blind_T).any() and clean_T.any()
    *qkv, d_out_HTD = random_inputs(plan.length, kv_heads=2, group=2, head_dim=8)
    options = {"plan": plan, "rope": make_rope(4), "scale": 0.35}
    before = with_gradients(attend_reference, *qkv, d_out_HTD, **options)
    if into != "values":
        qkv[1][:, slot] = poison
    if into != "keys":
        qkv[2][:, slot] = poison
    after = with_gradients(attend_reference, *qkv, d_out_HTD, **options)
    for name, old, new, rows_T in zip(
        RESULTS, before, after, (blind_T, blind_T, blind_T, clean_T, clean_T), strict=True
    ):
        assert torch.equal(old[:, rows_T], new[:, rows_T]), name
    assert not torch.equal(before[0][:, ~blind_T], after[0][:, ~blind_T])


def test_a_row_that_sees_nothing_is_zero_with_zero_gradients() -> None:
    """Catches: NaN from a softmax over nothing, in the output, in the row's gradient or in everybody's."""
    plan = make_plan([0, 1, 2], [Slice(q0=0, q1=2, k0=0, k1=2, causal=True, shift=0)])
    *qkv, d_out_HTD = random_inputs(3, kv_heads=1, group=2, head_dim=4)
    out_HTD, lse_HT, *gradients = with_gradients(
        attend_reference, *qkv, d_out_HTD, plan=plan, rope=make_rope(4), scale=1.0
    )
    assert torch.equal(out_HTD[:, 2], torch.zeros(2, 4, dtype=torch.float64))
    assert torch.equal(lse_HT[:, 2], torch.full((2,), -math.inf, dtype=torch.float64))
    for gradient in gradients:
        assert torch.equal(gradient[:, 2], torch.zeros_like(gradient[:, 2]))
        assert gradient.isfinite().all()


@pytest.mark.parametrize("rows", [0, 2])
def test_packs_without_keys_are_legal(rows: int) -> None:
    """Catches: no rows, or no visible key in the whole pack, breaking the graph of gradients."""
    *qkv, d_out_HTD = random_inputs(rows, kv_heads=1, group=2, head_dim=4)
    plan = make_plan(list(range(rows)), [])
    results = with_gradients(attend_reference, *qkv, d_out_HTD, plan=plan, rope=make_rope(4), scale=1.0)
    assert [tuple(x.shape) for x in results[:2]] == [(2, rows, 4), (2, rows)]
    assert not any(x.any() for x in results[2:])


def test_float64_stays_float64_and_bfloat16_computes_in_float32() -> None:
    """Catches: a library default of float32 (softmax, angles) inside a float64 run; a rounded log-sum-exp."""
    plan = random_plan(5)
    inputs = random_inputs(plan.length, kv_heads=1, group=2, head_dim=8)
    with OnlyFloat64():
        with_gradients(attend_reference, *inputs, plan=plan, rope=make_rope(4), scale=0.35)
    low = [x.to(torch.bfloat16) for x in inputs]
    options = {"plan": plan, "rope": make_rope(4), "scale": 0.35}
    out_HTD, lse_HT, *gradients = with_gradients(attend_reference, *low, **options)
    exact = with_gradients(attend_reference, *(x.double() for x in low), **options)
    assert out_HTD.dtype == torch.bfloat16 and lse_HT.dtype == torch.float32
    assert {gradient.dtype for gradient in gradients} == {torch.bfloat16}
    torch.testing.assert_close(lse_HT.double(), exact[1], rtol=1e-6, atol=1e-6)
    torch.testing.assert_close(out_HTD, exact[0].to(torch.bfloat16), rtol=2**-8, atol=1e-6)
