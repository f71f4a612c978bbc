"""Packed attention over spans: forward, gradients of queries, of keys and of values, and the sums of the latter two.

Queries and keys come rotated. A program owns a tile of rows and runs over the spans of the other side; it alone writes
what it sums, so every sum has one order. Log-sum-exp is the natural logarithm; `-inf` says that a row sees nothing, and
its gradients are 0. Base addresses are 64-bit, offsets within a block 32-bit.

Own rows o, other rows x; a tile is `first own row, stop, first span, stop span`, a span the columns of `spans.SPAN`.
"""

from __future__ import annotations

import triton
import triton.language as tl

LOG2E = tl.constexpr(1.4426950408889634)


@triton.jit
def _tile(tiles_N4, number, BLOCK: tl.constexpr):
    tile = tiles_N4 + number * 4
    t0 = tl.load(tile)
    return t0, tl.arange(0, BLOCK) < tl.load(tile + 1) - t0, tl.load(tile + 2), tl.load(tile + 3)


@triton.jit
def _span(spans_S7, number):
    """`x0, x1`, the rows to which the span shows something, where masks begin."""
    span = spans_S7 + number * 7
    return tl.load(span), tl.load(span + 1), tl.load(span + 6)


@triton.jit
def _shown(spans_S7, number, o, x, x1):
    """Which cells of a block a span shows; own rows down, other rows across."""
    span = spans_S7 + number * 7
    o0, o1, low, high = tl.load(span + 2), tl.load(span + 3), tl.load(span + 4), tl.load(span + 5)
    apart = x[None, :] - o[:, None]
    return ((o >= o0) & (o < o1))[:, None] & (x < x1)[None, :] & (apart >= low) & (apart <= high)


@triton.jit
def _rows(base, stride, BLOCK: tl.constexpr, DIM: tl.constexpr):
    """Pointers to a block of rows, the first of which lies at `base`."""
    return base + (tl.arange(0, BLOCK) * stride)[:, None] + tl.arange(0, DIM)[None, :]


@triton.jit
def _block(base, stride, at, here, BLOCK: tl.constexpr, DIM: tl.constexpr, MASKED: tl.constexpr):
    """Rows `[at, at + BLOCK)`; 0 for those that are not here."""
    rows = _rows(base + at * stride, stride, BLOCK, DIM)
    if MASKED:
        loaded = tl.load(rows, mask=here[:, None], other=0)
    else:
        loaded = tl.load(rows)
    return loaded


@triton.jit
def _log_sums(lse, x, here, MASKED: tl.constexpr):
    """In base 2; infinite for a row that sees nothing, as exp2(... - inf) is 0."""
    if MASKED:
        natural = tl.load(lse + x, mask=here, other=float("inf"))
    else:
        natural = tl.load(lse + x)
    return tl.where(natural == float("-inf"), float("inf"), natural) * LOG2E


@triton.jit
def _attend_block(q, k, v, k_row, v_row, spans_S7, span, o, at, x1, top, total, mixed, scale, DIM: tl.constexpr,
                  BLOCK_N: tl.constexpr, MASKED: tl.constexpr):  # fmt: skip
    x = at + tl.arange(0, BLOCK_N)
    keys = _block(k, k_row, at, x < x1, BLOCK_N, DIM, MASKED)
    values = _block(v, v_row, at, x < x1, BLOCK_N, DIM, MASKED)
    scores = tl.dot(q, tl.trans(keys), input_precision="ieee") * scale
    if MASKED:
        scores = tl.where(_shown(spans_S7, span, o, x, x1), scores, float("-inf"))
    higher = tl.maximum(top, tl.max(scores, 1))
    base = tl.where(higher == float("-inf"), 0.0, higher)  # -inf - -inf is NaN.
    weights, fade = tl.exp2(scores - base[:, None]), tl.exp2(top - base)
    mixed = tl.dot(weights.to(values.dtype), values, mixed * fade[:, None], input_precision="ieee")
    return higher, total * fade + tl.sum(weights, 1), mixed


@triton.jit
def attend_spans(
    q_HTD, k_GLD, v_GLD, out_HTD, lse_HT, tiles_N4, spans_S7, scale,
    q_head, q_row, k_head, k_row, v_head, v_row, out_head, out_row, lse_head,
    SHARE: tl.constexpr, DIM: tl.constexpr, BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr,
):  # fmt: skip
    """Forward: outputs and log-sum-exp of a tile of queries."""
    t0, present, first, last = _tile(tiles_N4, tl.program_id(0).to(tl.int64), BLOCK_M)
    head = tl.program_id(1).to(tl.int64)
    o = t0 + tl.arange(0, BLOCK_M)
    k, v = k_GLD + head // SHARE * k_head, v_GLD + head // SHARE * v_head
    q = _block(q_HTD + head * q_head, q_row, t0, present, BLOCK_M, DIM, True)
    top = tl.full((BLOCK_M,), float("-inf"), tl.float32)
    total = tl.zeros((BLOCK_M,), tl.float32)
    mixed = tl.zeros((BLOCK_M, DIM), tl.float32)
    for span in range(first, last):
        x0, x1, full = _span(spans_S7, span)
        whole = x0 + full * ((x1 - x0) // BLOCK_N * BLOCK_N)
        for at in range(x0, whole, BLOCK_N):
            top, total, mixed = _attend_block(q, k, v, k_row, v_row, spans_S7, span, o, at, x1, top, total, mixed,
                                              scale * LOG2E, DIM, BLOCK_N, False)  # fmt: skip
        for at in range(whole, x1, BLOCK_N):
            top, total, mixed = _attend_block(q, k, v, k_row, v_row, spans_S7, span, o, at, x1, top, total, mixed,
                                              scale * LOG2E, DIM, BLOCK_N, True)  # fmt: skip
    divisor = tl.where(total > 0, total, 1.0)
    out = _rows(out_HTD + head * out_head + t0 * out_row, out_row, BLOCK_M, DIM)
    tl.store(out, (mixed / divisor[:, None]).to(out_HTD.dtype.element_ty), mask=present[:, None])
    lse = tl.where(total > 0, (top + tl.log2(divisor)) / LOG2E, float("-inf"))
    tl.store(lse_HT + head * lse_head + o, lse, mask=present)


@triton.jit
def row_dots(
    out_HTD, d_out_HTD, dots_HT, rows, out_head, out_row, d_head, d_row, dots_head,
    DIM: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    """What the softmax's gradient subtracts: the product of output and its gradient, a row."""
    t0 = tl.program_id(0).to(tl.int64) * BLOCK
    head = tl.program_id(1).to(tl.int64)
    here = t0 + tl.arange(0, BLOCK) < rows
    out = _block(out_HTD + head * out_head, out_row, t0, here, BLOCK, DIM, True)
    d_out = _block(d_out_HTD + head * d_head, d_row, t0, here, BLOCK, DIM, True)
    dots = tl.sum(out.to(tl.float32) * d_out.to(tl.float32), 1)
    tl.store(dots_HT + head * dots_head + t0 + tl.arange(0, BLOCK), dots, mask=here)


@triton.jit
def _query_block(q, d_out, lse, dots, k, v, k_row, v_row, spans_S7, span, o, at, x1, dq, scale, DIM: tl.constexpr,
                 BLOCK_N: tl.constexpr, MASKED: tl.constexpr):  # fmt: skip
    x = at + tl.arange(0, BLOCK_N)
    keys = _block(k, k_row, at, x < x1, BLOCK_N, DIM, MASKED)
    values = _block(v, v_row, at, x < x1, BLOCK_N, DIM, MASKED)
    weights = tl.exp2(tl.dot(q, tl.trans(keys), input_precision="ieee") * scale - lse[:, None])
    if MASKED:
        weights = tl.where(_shown(spans_S7, span, o, x, x1), weights, 0.0)
    d_scores = weights * (tl.dot(d_out, tl.trans(values), input_precision="ieee") - dots[:, None])
    return tl.dot(d_scores.to(keys.dtype), keys, dq, input_precision="ieee")


@triton.jit
def query_gradients(
    q_HTD, k_GLD, v_GLD, d_out_HTD, lse_HT, dots_HT, dq_HTD, tiles_N4, spans_S7, scale,
    q_head, q_row, k_head, k_row, v_head, v_row, d_head, d_row, lse_head, dq_head, dq_row,
    SHARE: tl.constexpr, DIM: tl.constexpr, BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr,
):  # fmt: skip
    """Gradient of a tile of queries, as they came."""
    t0, present, first, last = _tile(tiles_N4, tl.program_id(0).to(tl.int64), BLOCK_M)
    head = tl.program_id(1).to(tl.int64)
    o = t0 + tl.arange(0, BLOCK_M)
    k, v = k_GLD + head // SHARE * k_head, v_GLD + head // SHARE * v_head
    q = _block(q_HTD + head * q_head, q_row, t0, present, BLOCK_M, DIM, True)
    d_out = _block(d_out_HTD + head * d_head, d_row, t0, present, BLOCK_M, DIM, True)
    lse = _log_sums(lse_HT + head * lse_head, o, present, True)
    dots = tl.load(dots_HT + head * lse_head + o, mask=present, other=0)
    dq = tl.zeros((BLOCK_M, DIM), tl.float32)
    for span in range(first, last):
        x0, x1, full = _span(spans_S7, span)
        whole = x0 + full * ((x1 - x0) // BLOCK_N * BLOCK_N)
        for at in range(x0, whole, BLOCK_N):
            dq = _query_block(q, d_out, lse, dots, k, v, k_row, v_row, spans_S7, span, o, at, x1, dq, scale * LOG2E,
                              DIM, BLOCK_N, False)  # fmt: skip
        for at in range(whole, x1, BLOCK_N):
            dq = _query_block(q, d_out, lse, dots, k, v, k_row, v_row, spans_S7, span, o, at, x1, dq, scale * LOG2E,
                              DIM, BLOCK_N, True)  # fmt: skip
    to = _rows(dq_HTD + head * dq_head + t0 * dq_row, dq_row, BLOCK_M, DIM)
    tl.store(to, (dq * scale).to(dq_HTD.dtype.element_ty), mask=present[:, None])


@triton.jit
def _key_block(k, v, q, d_out, lse, dots, q_row, d_row, spans_S7, span, o, at, x1, dk, scale, DIM: tl.constexpr,
               BLOCK_M: tl.constexpr, MASKED: tl.constexpr):  # fmt: skip
    x = at + tl.arange(0, BLOCK_M)
    queries = _block(q, q_row, at, x < x1, BLOCK_M, DIM, MASKED)
    d_rows = _block(d_out, d_row, at, x < x1, BLOCK_M, DIM, MASKED)
    if MASKED:
        dots_x = tl.load(dots + x, mask=x < x1, other=0)
    else:
        dots_x = tl.load(dots + x)
    log_sums = _log_sums(lse, x, x < x1, MASKED)
    weights = tl.exp2(tl.dot(k, tl.trans(queries), input_precision="ieee") * scale - log_sums[None, :])
    d_scores = weights * (tl.dot(v, tl.trans(d_rows), input_precision="ieee") - dots_x[None, :])
    if MASKED:  # Last: a key that nobody sees may be NaN, and so may its value.
        d_scores = tl.where(_shown(spans_S7, span, o, x, x1), d_scores, 0.0)
    return tl.dot(d_scores.to(queries.dtype), queries, dk, input_precision="ieee")


@triton.jit
def key_gradients(
    q_HTD, k_GLD, v_GLD, d_out_HTD, lse_HT, dots_HT, dk_NGMD, tiles_N4, spans_S7, scale, kv_heads,
    q_head, q_row, k_head, k_row, v_head, v_row, d_head, d_row, lse_head,
    SHARE: tl.constexpr, DIM: tl.constexpr, BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr,
):  # fmt: skip
    """Gradient of a tile of keys from all query heads that share them; each tile has a slot of its own."""
    number = tl.program_id(0).to(tl.int64)
    t0, present, first, last = _tile(tiles_N4, number, BLOCK_N)
    kv_head = tl.program_id(1).to(tl.int64)
    o = t0 + tl.arange(0, BLOCK_N)
    k = _block(k_GLD + kv_head * k_head, k_row, t0, present, BLOCK_N, DIM, True)
    v = _block(v_GLD + kv_head * v_head, v_row, t0, present, BLOCK_N, DIM, True)
    dk = tl.zeros((BLOCK_N, DIM), tl.float32)
    for head in range(kv_head * SHARE, kv_head * SHARE + SHARE):
        q, d_out = q_HTD + head * q_head, d_out_HTD + head * d_head
        lse, dots = lse_HT + head * lse_head, dots_HT + head * lse_head
        for span in range(first, last):
            x0, x1, full = _span(spans_S7, span)
            whole = x0 + full * ((x1 - x0) // BLOCK_M * BLOCK_M)
            for at in range(x0, whole, BLOCK_M):
                dk = _key_block(k, v, q, d_out, lse, dots, q_row, d_row, spans_S7, span, o, at, x1, dk, scale * LOG2E,
                                DIM, BLOCK_M, False)  # fmt: skip
            for at in range(whole, x1, BLOCK_M):
                dk = _key_block(k, v, q, d_out, lse, dots, q_row, d_row, spans_S7, span, o, at, x1, dk, scale * LOG2E,
                                DIM, BLOCK_M, True)  # fmt: skip
    slot = dk_NGMD + (number * kv_heads + kv_head) * BLOCK_N * DIM
    tl.store(_rows(slot, DIM, BLOCK_N, DIM), dk * scale, mask=present[:, None])


@triton.jit
def _value_block(k, q, d_out, lse, q_row, d_row, spans_S7, span, o, at, x1, dv, scale, DIM: tl.constexpr,
                 BLOCK_M: tl.constexpr, MASKED: tl.constexpr):  # fmt: skip
    x = at + tl.arange(0, BLOCK_M)
    queries = _block(q, q_row, at, x < x1, BLOCK_M, DIM, MASKED)
    d_rows = _block(d_out, d_row, at, x < x1, BLOCK_M, DIM, MASKED)
    log_sums = _log_sums(lse, x, x < x1, MASKED)
    weights = tl.exp2(tl.dot(k, tl.trans(queries), input_precision="ieee") * scale - log_sums[None, :])
    if MASKED:
        weights = tl.where(_shown(spans_S7, span, o, x, x1), weights, 0.0)
    return tl.dot(weights.to(d_rows.dtype), d_rows, dv, input_precision="ieee")


@triton.jit
def value_gradients(
    q_HTD, k_GLD, d_out_HTD, lse_HT, dv_NGMD, tiles_N4, spans_S7, scale, kv_heads,
    q_head, q_row, k_head, k_row, d_head, d_row, lse_head,
    SHARE: tl.constexpr, DIM: tl.constexpr, BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr,
):  # fmt: skip
    """Gradient of a tile of values, as `key_gradients`. A kernel of its own: registers hold one sum of this size."""
    number = tl.program_id(0).to(tl.int64)
    t0, present, first, last = _tile(tiles_N4, number, BLOCK_N)
    kv_head = tl.program_id(1).to(tl.int64)
    o = t0 + tl.arange(0, BLOCK_N)
    k = _block(k_GLD + kv_head * k_head, k_row, t0, present, BLOCK_N, DIM, True)
    dv = tl.zeros((BLOCK_N, DIM), tl.float32)
    for head in range(kv_head * SHARE, kv_head * SHARE + SHARE):
        q, d_out, lse = q_HTD + head * q_head, d_out_HTD + head * d_head, lse_HT + head * lse_head
        for span in range(first, last):
            x0, x1, full = _span(spans_S7, span)
            whole = x0 + full * ((x1 - x0) // BLOCK_M * BLOCK_M)
            for at in range(x0, whole, BLOCK_M):
                dv = _value_block(k, q, d_out, lse, q_row, d_row, spans_S7, span, o, at, x1, dv, scale * LOG2E, DIM,
                                  BLOCK_M, False)  # fmt: skip
            for at in range(whole, x1, BLOCK_M):
                dv = _value_block(k, q, d_out, lse, q_row, d_row, spans_S7, span, o, at, x1, dv, scale * LOG2E, DIM,
                                  BLOCK_M, True)  # fmt: skip
    slot = dv_NGMD + (number * kv_heads + kv_head) * BLOCK_N * DIM
    tl.store(_rows(slot, DIM, BLOCK_N, DIM), dv, mask=present[:, None])


@triton.jit
def sum_slots(
    slots_NGMD, sum_GLD, owners_E4, slots_N, kv_heads, sum_head, sum_row, BLOCK: tl.constexpr, DIM: tl.constexpr,
    ROWS: tl.constexpr,
):  # fmt: skip
    """Slots of the same own rows added up in their order; an owner is `first own row, stop, first slot, stop`."""
    t0, present, first, last = _tile(owners_E4, tl.program_id(0).to(tl.int64), BLOCK)
    kv_head = tl.program_id(1).to(tl.int64)
    part = tl.program_id(2) * ROWS
    inside = tl.arange(0, ROWS) + part < tl.sum(present.to(tl.int32), 0)
    total = tl.zeros((ROWS, DIM), tl.float32)
    for place in range(first, last):
        slot = ((tl.load(slots_N + place) * kv_heads + kv_head) * BLOCK + part) * DIM
        total += tl.load(_rows(slots_NGMD + slot, DIM, ROWS, DIM), mask=inside[:, None], other=0)
    to = _rows(sum_GLD + kv_head * sum_head + (t0 + part) * sum_row, sum_row, ROWS, DIM)
    tl.store(to, total.to(sum_GLD.dtype.element_ty), mask=inside[:, None])
