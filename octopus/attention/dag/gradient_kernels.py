"""Packed attention over spans: gradients of queries, of keys and of values, and the sums of the latter two.

A program owns a tile of rows and runs over the spans of the other side; it alone writes what it sums, so every sum has
one order. Queries and keys come rotated; the gradients of a row that sees nothing are 0.
"""

from __future__ import annotations

import triton
import triton.language as tl

from octopus.attention.dag.span_kernels import (
    LOG2E,
    all_rows,
    log_sums,
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
def row_dots(
    out_HTD, d_out_HTD, dots_HT, rows, out_head, out_row, d_head, d_row, dots_head,
    DIM: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    """What the softmax's gradient subtracts: the product of output and its gradient, a row."""
    t0 = tl.program_id(0).to(tl.int64) * BLOCK
    head = tl.program_id(1).to(tl.int64)
    here = t0 + tl.arange(0, BLOCK) < rows
    out = some_rows(out_HTD + head * out_head, out_row, t0, here, BLOCK, DIM)
    d_out = some_rows(d_out_HTD + head * d_head, d_row, t0, here, BLOCK, DIM)
    dots = tl.sum(out.to(tl.float32) * d_out.to(tl.float32), 1)
    tl.store(dots_HT + head * dots_head + t0 + tl.arange(0, BLOCK), dots, mask=here)


@triton.jit
def _query_block(
    q, d_out, lse, dots, k_desc, v_desc, kv_head, k, v, k_row, v_row, spans_S7, span, o, at, x1, dq, scale,
    DIM: tl.constexpr, BLOCK: tl.constexpr, MASKED: tl.constexpr,
):  # fmt: skip
    x = at + tl.arange(0, BLOCK)
    if MASKED:
        keys = some_rows(k, k_row, at, x < x1, BLOCK, DIM)
        values = some_rows(v, v_row, at, x < x1, BLOCK, DIM)
    else:
        keys = all_rows(k_desc, kv_head, at, BLOCK, DIM)
        values = all_rows(v_desc, kv_head, at, BLOCK, DIM)
    weights = tl.exp2(tl.dot(q, tl.trans(keys), input_precision="ieee") * scale - lse[:, None])
    d_scores = weights * (tl.dot(d_out, tl.trans(values), input_precision="ieee") - dots[:, None])
    if MASKED:  # Last: a key that a row does not see may be NaN, and so may its value.
        d_scores = tl.where(shown(spans_S7, span, o, x, x1), d_scores, 0.0)
        keys, _ = numbers_only(keys)
    return tl.dot(d_scores.to(keys.dtype), keys, dq, input_precision="ieee")


@triton.jit
def query_gradients(
    q_HTD, k_desc, v_desc, k_GLD, v_GLD, d_out_HTD, lse_HT, dots_HT, dq_HTD, tiles_N4, spans_S7, scale,
    q_head, q_row, k_head, k_row, v_head, v_row, d_head, d_row, lse_head, dq_head, dq_row,
    SHARE: tl.constexpr, DIM: tl.constexpr, OWN: tl.constexpr, OTHER: tl.constexpr, REST: tl.constexpr,
):  # fmt: skip
    """Gradient of a tile of queries, as they came."""
    t0, present, first, last = tile_at(tiles_N4, tl.program_id(0).to(tl.int64), OWN)
    head = tl.program_id(1).to(tl.int64)
    kv_head = head // SHARE
    o = t0 + tl.arange(0, OWN)
    k, v = k_GLD + kv_head * k_head, v_GLD + kv_head * v_head
    q = some_rows(q_HTD + head * q_head, q_row, t0, present, OWN, DIM)
    d_out = some_rows(d_out_HTD + head * d_head, d_row, t0, present, OWN, DIM)
    lse = log_sums(lse_HT + head * lse_head, o, present, True)
    dots = tl.load(dots_HT + head * lse_head + o, mask=present, other=0)
    dq = tl.zeros((OWN, DIM), tl.float32)
    for span in tl.range(first, last, num_stages=1, disable_licm=True):
        x0, whole, x1 = span_at(spans_S7, span, OTHER)
        for at in tl.range(x0, whole, OTHER, disable_licm=True):
            dq = _query_block(q, d_out, lse, dots, k_desc, v_desc, kv_head, k, v, k_row, v_row, spans_S7, span, o, at,
                              x1, dq, scale * LOG2E, DIM, OTHER, False)  # fmt: skip
        for at in tl.range(whole, x1, REST, disable_licm=True):
            dq = _query_block(q, d_out, lse, dots, k_desc, v_desc, kv_head, k, v, k_row, v_row, spans_S7, span, o, at,
                              x1, dq, scale * LOG2E, DIM, REST, True)  # fmt: skip
    to = rows_at(dq_HTD + head * dq_head + t0 * dq_row, dq_row, OWN, DIM)
    tl.store(to, (dq * scale).to(dq_HTD.dtype.element_ty), mask=present[:, None])


@triton.jit
def _queries(
    q_desc, d_desc, head, q, d_out, lse, q_row, d_row, at, x, x1,
    DIM: tl.constexpr, BLOCK: tl.constexpr, MASKED: tl.constexpr,
):  # fmt: skip
    """A block of queries, with their outputs' gradients and log-sum-exps."""
    if MASKED:
        queries = some_rows(q, q_row, at, x < x1, BLOCK, DIM)
        d_rows = some_rows(d_out, d_row, at, x < x1, BLOCK, DIM)
    else:
        queries = all_rows(q_desc, head, at, BLOCK, DIM)
        d_rows = all_rows(d_desc, head, at, BLOCK, DIM)
    return queries, d_rows, log_sums(lse, x, x < x1, MASKED)


@triton.jit
def _key_block(
    k, v, q_desc, d_desc, head, q, d_out, lse, dots, q_row, d_row, spans_S7, span, o, at, x1, dk, scale,
    DIM: tl.constexpr, BLOCK: tl.constexpr, MASKED: tl.constexpr,
):  # fmt: skip
    x = at + tl.arange(0, BLOCK)
    queries, d_rows, lse_x = _queries(q_desc, d_desc, head, q, d_out, lse, q_row, d_row, at, x, x1, DIM, BLOCK, MASKED)
    if MASKED:
        dots_x = tl.load(dots + x, mask=x < x1, other=0)
    else:
        dots_x = tl.load(dots + x)
    weights = tl.exp2(tl.dot(k, tl.trans(queries), input_precision="ieee") * scale - lse_x[None, :])
    d_scores = weights * (tl.dot(v, tl.trans(d_rows), input_precision="ieee") - dots_x[None, :])
    if MASKED:  # Last: so may a query, and its output's gradient.
        d_scores = tl.where(shown(spans_S7, span, o, x, x1), d_scores, 0.0)
        queries, _ = numbers_only(queries)
    return tl.dot(d_scores.to(queries.dtype), queries, dk, input_precision="ieee")


@triton.jit
def key_gradients(
    q_desc, d_desc, q_HTD, k_GLD, v_GLD, d_out_HTD, lse_HT, dots_HT, dk_NGMD, tiles_N4, spans_S7, scale, kv_heads,
    q_head, q_row, k_head, k_row, v_head, v_row, d_head, d_row, lse_head,
    SHARE: tl.constexpr, DIM: tl.constexpr, OWN: tl.constexpr, OTHER: tl.constexpr, REST: tl.constexpr,
):  # fmt: skip
    """Gradient of a tile of keys from all query heads that share them; each tile has a slot of its own."""
    number = tl.program_id(0).to(tl.int64)
    t0, present, first, last = tile_at(tiles_N4, number, OWN)
    kv_head = tl.program_id(1).to(tl.int64)
    o = t0 + tl.arange(0, OWN)
    k = some_rows(k_GLD + kv_head * k_head, k_row, t0, present, OWN, DIM)
    v = some_rows(v_GLD + kv_head * v_head, v_row, t0, present, OWN, DIM)
    dk = tl.zeros((OWN, DIM), tl.float32)
    for head in tl.range(kv_head * SHARE, kv_head * SHARE + SHARE, num_stages=1, disable_licm=True):
        q, d_out = q_HTD + head * q_head, d_out_HTD + head * d_head
        lse, dots = lse_HT + head * lse_head, dots_HT + head * lse_head
        for span in tl.range(first, last, num_stages=1, disable_licm=True):
            x0, whole, x1 = span_at(spans_S7, span, OTHER)
            for at in tl.range(x0, whole, OTHER, disable_licm=True):
                dk = _key_block(k, v, q_desc, d_desc, head, q, d_out, lse, dots, q_row, d_row, spans_S7, span, o, at,
                                x1, dk, scale * LOG2E, DIM, OTHER, False)  # fmt: skip
            for at in tl.range(whole, x1, REST, disable_licm=True):
                dk = _key_block(k, v, q_desc, d_desc, head, q, d_out, lse, dots, q_row, d_row, spans_S7, span, o, at,
                                x1, dk, scale * LOG2E, DIM, REST, True)  # fmt: skip
    slot = dk_NGMD + (number * kv_heads + kv_head) * OWN * DIM
    tl.store(rows_at(slot, DIM, OWN, DIM), dk * scale, mask=present[:, None])


@triton.jit
def _value_block(
    k, q_desc, d_desc, head, q, d_out, lse, q_row, d_row, spans_S7, span, o, at, x1, dv, touch, scale,
    DIM: tl.constexpr, BLOCK: tl.constexpr, MASKED: tl.constexpr,
):  # fmt: skip
    x = at + tl.arange(0, BLOCK)
    queries, d_rows, lse_x = _queries(q_desc, d_desc, head, q, d_out, lse, q_row, d_row, at, x, x1, DIM, BLOCK, MASKED)
    weights = tl.exp2(tl.dot(k, tl.trans(queries), input_precision="ieee") * scale - lse_x[None, :])
    if MASKED:
        seen = shown(spans_S7, span, o, x, x1)
        weights = tl.where(seen, weights, 0.0)
        d_rows, odd = numbers_only(d_rows)
        touch |= touched(seen, odd)
    return tl.dot(weights.to(d_rows.dtype), d_rows, dv, input_precision="ieee"), touch


@triton.jit
def value_gradients(
    q_desc, d_desc, q_HTD, k_GLD, d_out_HTD, lse_HT, dv_NGMD, tiles_N4, spans_S7, scale, kv_heads,
    q_head, q_row, k_head, k_row, d_head, d_row, lse_head,
    SHARE: tl.constexpr, DIM: tl.constexpr, OWN: tl.constexpr, OTHER: tl.constexpr, REST: tl.constexpr,
):  # fmt: skip
    """Gradient of a tile of values, as `key_gradients`. A kernel of its own: registers hold one sum of this size."""
    number = tl.program_id(0).to(tl.int64)
    t0, present, first, last = tile_at(tiles_N4, number, OWN)
    kv_head = tl.program_id(1).to(tl.int64)
    o = t0 + tl.arange(0, OWN)
    k = some_rows(k_GLD + kv_head * k_head, k_row, t0, present, OWN, DIM)
    dv = tl.zeros((OWN, DIM), tl.float32)
    touch = tl.zeros((OWN,), tl.int32)
    for head in tl.range(kv_head * SHARE, kv_head * SHARE + SHARE, num_stages=1, disable_licm=True):
        q, d_out, lse = q_HTD + head * q_head, d_out_HTD + head * d_head, lse_HT + head * lse_head
        for span in tl.range(first, last, num_stages=1, disable_licm=True):
            x0, whole, x1 = span_at(spans_S7, span, OTHER)
            for at in tl.range(x0, whole, OTHER, disable_licm=True):
                dv, touch = _value_block(k, q_desc, d_desc, head, q, d_out, lse, q_row, d_row, spans_S7, span, o, at,
                                         x1, dv, touch, scale * LOG2E, DIM, OTHER, False)  # fmt: skip
            for at in tl.range(whole, x1, REST, disable_licm=True):
                dv, touch = _value_block(k, q_desc, d_desc, head, q, d_out, lse, q_row, d_row, spans_S7, span, o, at,
                                         x1, dv, touch, scale * LOG2E, DIM, REST, True)  # fmt: skip
    slot = dv_NGMD + (number * kv_heads + kv_head) * OWN * DIM
    tl.store(rows_at(slot, DIM, OWN, DIM), spoiled(dv, touch), mask=present[:, None])


@triton.jit
def sum_slots(
    slots_NGMD, sum_GLD, owners_E4, slots_N, kv_heads, sum_head, sum_row, OWN: tl.constexpr, DIM: tl.constexpr,
    ROWS: tl.constexpr,
):  # fmt: skip
    """Slots of the same own rows added up in their order; an owner is `first own row, stop, first slot, stop`."""
    t0, present, first, last = tile_at(owners_E4, tl.program_id(0).to(tl.int64), OWN)
    kv_head = tl.program_id(1).to(tl.int64)
    part = tl.program_id(2) * ROWS
    inside = tl.arange(0, ROWS) + part < tl.sum(present.to(tl.int32), 0)
    total = tl.zeros((ROWS, DIM), tl.float32)
    for place in range(first, last):
        slot = ((tl.load(slots_N + place) * kv_heads + kv_head) * OWN + part) * DIM
        total += tl.load(rows_at(slots_NGMD + slot, DIM, ROWS, DIM), mask=inside[:, None], other=0)
    to = rows_at(sum_GLD + kv_head * sum_head + (t0 + part) * sum_row, sum_row, ROWS, DIM)
    tl.store(to, total.to(sum_GLD.dtype.element_ty), mask=inside[:, None])
