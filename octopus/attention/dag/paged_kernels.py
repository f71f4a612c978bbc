"""Paged attention in two launches: every tile's readers over its keys, then every row's parts joined.

All addresses are 64-bit: a pool may have more than 2^31 elements. Products are accumulated in float32 (in the
interpreter, and for float32 inputs, with IEEE rounding). Natural-log LSE; 0 and -inf for what sees nothing.
"""

from __future__ import annotations

import triton
import triton.language as tl

LOG2E = tl.constexpr(1.4426950408889634)


@triton.jit
def _turned(x, at, d, cos_VR, sin_VR, view, inside, HALF: tl.constexpr):
    """Rows of a tensor, rotated to their view's angles, in float32; dimension i < R turns with i + R."""
    own = tl.load(x + at[:, None] + d[None, :], mask=inside, other=0).to(tl.float32)
    if HALF:
        turning = inside & (d < 2 * HALF)[None, :]
        partner = tl.where(d < HALF, d + HALF, d - HALF)
        other = tl.load(x + at[:, None] + partner[None, :], mask=turning, other=0).to(tl.float32)
        angle = view[:, None] * HALF + tl.where(d < HALF, d, partner)[None, :]
        cos = tl.load(cos_VR + angle, mask=turning, other=1)
        sin = tl.load(sin_VR + angle, mask=turning, other=0)
        own = own * cos + other * tl.where(d < HALF, -1.0, 1.0)[None, :] * sin
    return own


@triton.jit
def _block(q, k, v, slots_K, at, n_stop, k_stride, v_stride, d, reader_stop, top, total, mixed, scale,
           BLOCK_N: tl.constexpr, DIM: tl.constexpr, MASKED: tl.constexpr):  # fmt: skip
    """One online-softmax step over keys `[at, at + BLOCK_N)`."""
    n = at + tl.arange(0, BLOCK_N)
    slot = tl.load(slots_K + n, mask=n < n_stop, other=0) if MASKED else tl.load(slots_K + n)
    here = (d < DIM)[None, :] & (n < n_stop)[:, None] if MASKED else (d < DIM)[None, :]
    keys = tl.load(k + (slot * k_stride)[:, None] + d[None, :], mask=here, other=0)
    scores = tl.dot(q, tl.trans(keys), input_precision="ieee") * scale
    if MASKED:
        scores = tl.where((n[None, :] < reader_stop[:, None]) & (n < n_stop)[None, :], scores, float("-inf"))
    higher = tl.maximum(top, tl.max(scores, 1))
    base = tl.where(higher == float("-inf"), 0.0, higher)  # -inf - -inf is NaN.
    weights = tl.exp2(scores - base[:, None])
    fade = tl.exp2(top - base)
    values = tl.load(v + (slot * v_stride)[:, None] + d[None, :], mask=here, other=0)
    mixed = mixed * fade[:, None] + tl.dot(weights.to(values.dtype), values, input_precision="ieee")
    return higher, total * fade + tl.sum(weights, 1), mixed


@triton.jit
def attend_tiles(
    q_HTD, k_SGD, v_SGD, out_PHD, lse_PH, cos_VR, sin_VR, slots_K, items_I5, reader_view_R, reader_stop_R, view_row_V,
    scale, q_head, q_row, k_slot, k_head, v_slot, v_head, heads,
    SHARE: tl.constexpr, HALF: tl.constexpr, DIM: tl.constexpr, WIDTH: tl.constexpr,
    BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr,
):  # fmt: skip
    """One tile and one key/value head; its `SHARE` query heads of each reader are rows of one product."""
    kv_head = tl.program_id(0).to(tl.int64)
    item = items_I5 + tl.program_id(1).to(tl.int64) * 5
    first, stop, full_stop = tl.load(item), tl.load(item + 1), tl.load(item + 2)
    first_reader, readers = tl.load(item + 3), tl.load(item + 4)
    m = tl.arange(0, BLOCK_M)
    d = tl.arange(0, WIDTH)
    present = m < readers * SHARE
    reader = first_reader + m // SHARE
    head = kv_head * SHARE + m % SHARE
    view = tl.load(reader_view_R + reader, mask=present, other=0)
    reader_stop = tl.load(reader_stop_R + reader, mask=present, other=0)
    row = tl.load(view_row_V + view, mask=present, other=0)
    inside = present[:, None] & (d < DIM)[None, :]
    q = _turned(q_HTD, head * q_head + row * q_row, d, cos_VR, sin_VR, view, inside, HALF).to(k_SGD.dtype.element_ty)
    k, v = k_SGD + kv_head * k_head, v_SGD + kv_head * v_head
    top = tl.full((BLOCK_M,), float("-inf"), tl.float32)
    total = tl.zeros((BLOCK_M,), tl.float32)
    mixed = tl.zeros((BLOCK_M, WIDTH), tl.float32)
    whole = first + (full_stop - first) // BLOCK_N * BLOCK_N
    for at in range(first, whole, BLOCK_N):
        top, total, mixed = _block(q, k, v, slots_K, at, stop, k_slot, v_slot, d, reader_stop, top, total, mixed,
                                   scale * LOG2E, BLOCK_N, DIM, False)  # fmt: skip
    for at in range(whole, stop, BLOCK_N):
        top, total, mixed = _block(q, k, v, slots_K, at, stop, k_slot, v_slot, d, reader_stop, top, total, mixed,
                                   scale * LOG2E, BLOCK_N, DIM, True)  # fmt: skip
    part = reader * heads + head
    divisor = tl.where(total > 0, total, 1.0)
    tl.store(out_PHD + (part * DIM)[:, None] + d[None, :], mixed / divisor[:, None], mask=inside)
    tl.store(lse_PH + part, tl.where(total > 0, (top + tl.log2(divisor)) / LOG2E, float("-inf")), mask=present)


@triton.jit
def join_parts(
    out_PHD, lse_PH, parts_P, part_starts_T, out_HTD, lse_HT, heads, out_head, out_row, lse_head,
    DIM: tl.constexpr, WIDTH: tl.constexpr,
):  # fmt: skip
    """One row and head: its parts in their order, weighted by their shares of the sum of exponentials."""
    row, head = tl.program_id(0).to(tl.int64), tl.program_id(1).to(tl.int64)
    d = tl.arange(0, WIDTH)
    top, total = float("-inf"), 0.0
    mixed = tl.zeros((WIDTH,), tl.float32)
    for number in range(tl.load(part_starts_T + row), tl.load(part_starts_T + row + 1)):
        part = tl.load(parts_P + number) * heads + head
        lse = tl.load(lse_PH + part)
        higher = tl.maximum(top, lse)
        base = tl.where(higher == float("-inf"), 0.0, higher)
        fade, share = tl.exp(top - base), tl.exp(lse - base)
        mixed = mixed * fade + tl.load(out_PHD + part * DIM + d, mask=d < DIM, other=0) * share
        total = total * fade + share
        top = higher
    divisor = tl.where(total > 0, total, 1.0)
    out = (mixed / divisor).to(out_HTD.dtype.element_ty)
    tl.store(out_HTD + head * out_head + row * out_row + d, out, mask=d < DIM)
    tl.store(lse_HT + head * lse_head + row, tl.where(total > 0, top + tl.log(divisor), float("-inf")))
