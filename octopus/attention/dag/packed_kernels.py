"""Packed attention over spans, the forward pass. Queries and keys come rotated.

A program owns a tile of queries and runs over the spans of its keys, so that every sum has one order. Log-sum-exp is
the natural logarithm; `-inf` says that a row sees nothing.
"""

from __future__ import annotations

import triton
import triton.language as tl

from octopus.attention.dag.span_kernels import (
    LOG2E,
    all_rows,
    numbers_only,
    rows_at,
    shown,
    some_rows,
    span_at,
    spoiled,
    tile_at,
    touched,
)


@triton.jit
def _attend_block(
    q, k_desc, v_desc, kv_head, k, v, k_row, v_row, spans_S7, span, o, at, x1, top, total, mixed, touch,
    scale, DIM: tl.constexpr, BLOCK: tl.constexpr, MASKED: tl.constexpr,
):  # fmt: skip
    """One step of the online softmax."""
    x = at + tl.arange(0, BLOCK)
    if MASKED:
        keys = some_rows(k, k_row, at, x < x1, BLOCK, DIM)
        values = some_rows(v, v_row, at, x < x1, BLOCK, DIM)
    else:
        keys = all_rows(k_desc, kv_head, at, BLOCK, DIM)
        values = all_rows(v_desc, kv_head, at, BLOCK, DIM)
    scores = tl.dot(q, tl.trans(keys), input_precision="ieee") * scale
    if MASKED:
        seen = shown(spans_S7, span, o, x, x1)
        scores = tl.where(seen, scores, float("-inf"))
        values, odd = numbers_only(values)
    higher = tl.maximum(top, tl.max(scores, 1))
    base = tl.where(higher == float("-inf"), 0.0, higher)  # -inf - -inf is NaN.
    weights, fade = tl.exp2(scores - base[:, None]), tl.exp2(top - base)
    mixed = tl.dot(weights.to(values.dtype), values, mixed * fade[:, None], input_precision="ieee")
    if MASKED:
        touch |= touched(seen, odd)
    return higher, total * fade + tl.sum(weights, 1), mixed, touch


@triton.jit
def attend_spans(
    q_HTD, k_desc, v_desc, k_GLD, v_GLD, out_HTD, lse_HT, tiles_N4, spans_S7, scale,
    q_head, q_row, k_head, k_row, v_head, v_row, out_head, out_row, lse_head,
    SHARE: tl.constexpr, DIM: tl.constexpr, OWN: tl.constexpr, OTHER: tl.constexpr, REST: tl.constexpr,
):  # fmt: skip
    """Outputs and log-sum-exp of a tile of queries."""
    t0, present, first, last = tile_at(tiles_N4, tl.program_id(0).to(tl.int64), OWN)
    head = tl.program_id(1).to(tl.int64)
    kv_head = head // SHARE
    o = t0 + tl.arange(0, OWN)
    k, v = k_GLD + kv_head * k_head, v_GLD + kv_head * v_head
    q = some_rows(q_HTD + head * q_head, q_row, t0, present, OWN, DIM)
    top = tl.full((OWN,), float("-inf"), tl.float32)
    total = tl.zeros((OWN,), tl.float32)
    mixed = tl.zeros((OWN, DIM), tl.float32)
    touch = tl.zeros((OWN,), tl.int32)
    for span in tl.range(first, last, num_stages=1, disable_licm=True):
        x0, whole, x1 = span_at(spans_S7, span, OTHER)
        for at in tl.range(x0, whole, OTHER, disable_licm=True):
            top, total, mixed, touch = _attend_block(
                q, k_desc, v_desc, kv_head, k, v, k_row, v_row, spans_S7, span, o, at, x1, top, total, mixed, touch,
                scale * LOG2E, DIM, OTHER, False,
            )  # fmt: skip
        for at in tl.range(whole, x1, REST, disable_licm=True):
            top, total, mixed, touch = _attend_block(
                q, k_desc, v_desc, kv_head, k, v, k_row, v_row, spans_S7, span, o, at, x1, top, total, mixed, touch,
                scale * LOG2E, DIM, REST, True,
            )  # fmt: skip
    divisor = tl.where(total > 0, total, 1.0)
    out = rows_at(out_HTD + head * out_head + t0 * out_row, out_row, OWN, DIM)
    tl.store(out, spoiled(mixed / divisor[:, None], touch).to(out_HTD.dtype.element_ty), mask=present[:, None])
    lse = tl.where(total > 0, (top + tl.log2(divisor)) / LOG2E, float("-inf"))
    tl.store(lse_HT + head * lse_head + o, lse, mask=present)
