"""Paged attention in two launches: every tile's readers over its keys, then every row's parts joined.

Queries come rotated, one for each view (a row and the shift at which it sees something).

All addresses are 64-bit: a pool may have more than 2^31 elements. Products are accumulated in float32 (in the
interpreter, and for float32 inputs, with IEEE rounding). Natural-log LSE; 0 and -inf for what sees nothing.
"""

from __future__ import annotations

import triton
import triton.language as tl

LOG2E = tl.constexpr(1.4426950408889634)


@triton.jit
def _block(q, k, v, slot, n, n_stop, k_stride, v_stride, d, reader_stop, top, total, mixed, scale,
           DIM: tl.constexpr, MASKED: tl.constexpr):  # fmt: skip
    """One online-softmax step over keys `n`, which lie in `slot`."""
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
    mixed = tl.dot(weights.to(values.dtype), values, mixed * fade[:, None], input_precision="ieee")
    return higher, total * fade + tl.sum(weights, 1), mixed


@triton.jit
def _tile(
    q_HVD, k, v, out_PHD, lse_PH, slots_K, item, reader_view_R, reader_stop_R, scale, q_head, q_view, k_slot, v_slot,
    kv_head, heads,
    SHARE: tl.constexpr, DIM: tl.constexpr, WIDTH: tl.constexpr,
    BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr,
):  # fmt: skip
    """One tile and one key/value head; its `SHARE` query heads of each reader are rows of one product."""
    first, stop, full_stop = tl.load(item), tl.load(item + 1), tl.load(item + 2)
    first_reader, readers = tl.load(item + 3), tl.load(item + 4)
    m = tl.arange(0, BLOCK_M)
    d = tl.arange(0, WIDTH)
    present = m < readers * SHARE
    reader = first_reader + m // SHARE
    head = kv_head * SHARE + m % SHARE
    view = tl.load(reader_view_R + reader, mask=present, other=0)
    reader_stop = tl.load(reader_stop_R + reader, mask=present, other=0)
    inside = present[:, None] & (d < DIM)[None, :]
    q = tl.load(q_HVD + (head * q_head + view * q_view)[:, None] + d[None, :], mask=inside, other=0)
    top = tl.full((BLOCK_M,), float("-inf"), tl.float32)
    total = tl.zeros((BLOCK_M,), tl.float32)
    mixed = tl.zeros((BLOCK_M, WIDTH), tl.float32)
    whole = first + (full_stop - first) // BLOCK_N * BLOCK_N
    n = first + tl.arange(0, BLOCK_N)
    slot = tl.load(slots_K + n, mask=n < stop, other=0)
    for _ in range(first, whole, BLOCK_N):
        following = tl.load(slots_K + n + BLOCK_N, mask=n + BLOCK_N < stop, other=0)  # Early: loads wait for it.
        top, total, mixed = _block(q, k, v, slot, n, stop, k_slot, v_slot, d, reader_stop, top, total, mixed,
                                   scale * LOG2E, DIM, False)  # fmt: skip
        n += BLOCK_N
        slot = following
    for _ in range(whole, stop, BLOCK_N):
        following = tl.load(slots_K + n + BLOCK_N, mask=n + BLOCK_N < stop, other=0)
        top, total, mixed = _block(q, k, v, slot, n, stop, k_slot, v_slot, d, reader_stop, top, total, mixed,
                                   scale * LOG2E, DIM, True)  # fmt: skip
        n += BLOCK_N
        slot = following
    part = reader * heads + head
    divisor = tl.where(total > 0, total, 1.0)
    tl.store(out_PHD + (part * DIM)[:, None] + d[None, :], mixed / divisor[:, None], mask=inside)
    tl.store(lse_PH + part, tl.where(total > 0, (top + tl.log2(divisor)) / LOG2E, float("-inf")), mask=present)


@triton.jit
def attend_tiles(
    q_HVD, k_SGD, v_SGD, out_PHD, lse_PH, slots_K, items_I5, reader_view_R, reader_stop_R, scale,
    q_head, q_view, k_slot, k_head, v_slot, v_head, heads,
    SHARE: tl.constexpr, DIM: tl.constexpr, WIDTH: tl.constexpr,
    FEW_M: tl.constexpr, FEW_N: tl.constexpr, MANY_M: tl.constexpr, MANY_N: tl.constexpr,
):  # fmt: skip
    """All tiles in one launch: those of few readers wait for memory while those of many compute."""
    kv_head = tl.program_id(0).to(tl.int64)
    item = items_I5 + tl.program_id(1).to(tl.int64) * 5
    k, v = k_SGD + kv_head * k_head, v_SGD + kv_head * v_head
    if tl.load(item + 4) * SHARE <= FEW_M:
        _tile(q_HVD, k, v, out_PHD, lse_PH, slots_K, item, reader_view_R, reader_stop_R, scale, q_head, q_view, k_slot,
              v_slot, kv_head, heads, SHARE, DIM, WIDTH, FEW_M, FEW_N)  # fmt: skip
    else:
        _tile(q_HVD, k, v, out_PHD, lse_PH, slots_K, item, reader_view_R, reader_stop_R, scale, q_head, q_view, k_slot,
              v_slot, kv_head, heads, SHARE, DIM, WIDTH, MANY_M, MANY_N)  # fmt: skip


@triton.jit
def join_parts(
    out_PHD, lse_PH, parts_P, part_starts_T, out_HTD, lse_HT, heads, out_head, out_row, lse_head,
    DIM: tl.constexpr, WIDTH: tl.constexpr, BLOCK_P: tl.constexpr,
):  # fmt: skip
    """One row and head: its parts in their order, `BLOCK_P` at once, weighted by their shares of the sum."""
    row, head = tl.program_id(0).to(tl.int64), tl.program_id(1).to(tl.int64)
    d = tl.arange(0, WIDTH)
    top, total = float("-inf"), 0.0
    mixed = tl.zeros((WIDTH,), tl.float32)
    stop = tl.load(part_starts_T + row + 1)
    for at in range(tl.load(part_starts_T + row), stop, BLOCK_P):
        number = at + tl.arange(0, BLOCK_P)
        part = tl.load(parts_P + number, mask=number < stop, other=0) * heads + head
        lse = tl.load(lse_PH + part, mask=number < stop, other=float("-inf"))
        inside = (number < stop)[:, None] & (d < DIM)[None, :]
        out = tl.load(out_PHD + (part * DIM)[:, None] + d[None, :], mask=inside, other=0)
        higher = tl.maximum(top, tl.max(lse, 0))
        base = tl.where(higher == float("-inf"), 0.0, higher)
        fade, shares = tl.exp(top - base), tl.exp(lse - base)
        mixed = mixed * fade + tl.sum(out * shares[:, None], 0)
        total = total * fade + tl.sum(shares, 0)
        top = higher
    divisor = tl.where(total > 0, total, 1.0)
    out = (mixed / divisor).to(out_HTD.dtype.element_ty)
    tl.store(out_HTD + head * out_head + row * out_row + d, out, mask=d < DIM)
    tl.store(lse_HT + head * lse_head + row, tl.where(total > 0, top + tl.log(divisor), float("-inf")))
