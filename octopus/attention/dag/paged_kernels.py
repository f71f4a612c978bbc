"""Paged attention in two launches: every tile's readers over its keys, then every row's parts joined.

Queries come rotated to the shift at which they see something, in the order in which tiles want them. Queries and blocks
of keys are loaded through tensor descriptors, single keys by their addresses.

Numbers of slots, readers and parts are 32-bit, since registers are scarce; addresses are 64-bit: a pool may have more
than 2^31 elements. Products are accumulated in float32 (in the
interpreter, and for float32 inputs, with IEEE rounding). Natural-log LSE; 0 and -inf for what sees nothing.

Letters: H query heads, G key/value heads, T rows, S slots, B blocks, K single keys, Q queries, P parts, I tiles, W
programs, D head dimension.
"""

from __future__ import annotations

import triton
import triton.language as tl

from octopus.attention.dag.span_kernels import LOG2E, numbers_only, spoiled, touched


@triton.jit
def _weighed(scores, scale, top, total):
    """Online softmax: the greatest score and the sum so far, this block's weights, how much all before fades."""
    higher = tl.maximum(top, tl.max(scores, 1) * scale)
    base = tl.where(higher == float("-inf"), 0.0, higher)  # -inf - -inf is NaN.
    weights = tl.exp2(scores * scale - base[:, None])
    fade = tl.exp2(top - base)
    return higher, total * fade + tl.sum(weights, 1), weights, fade


@triton.jit
def _tile(
    q_desc, k_desc, v_desc, k, v, out_PHD, lse_PH, blocks_B, slots_K, item, part_stop_P, scale, k_slot, v_slot, kv_head,
    heads, SHARE: tl.constexpr, DIM: tl.constexpr, WIDTH: tl.constexpr,
    BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, SINGLE_N: tl.constexpr,
):  # fmt: skip
    """One tile and one key/value head; the `SHARE` query heads of each reader are rows of one product."""
    m = tl.arange(0, BLOCK_M)
    d = tl.arange(0, WIDTH)
    q = tl.reshape(q_desc.load([kv_head, tl.load(item + 4) * SHARE, 0]), (BLOCK_M, WIDTH))
    top = tl.full((BLOCK_M,), float("-inf"), tl.float32)
    total = tl.zeros((BLOCK_M,), tl.float32)
    mixed = tl.zeros((BLOCK_M, WIDTH), tl.float32)
    touch = tl.zeros((BLOCK_M,), tl.int32)
    for at in range(tl.load(item), tl.load(item + 1)):
        slot = tl.load(blocks_B + at)
        keys = tl.reshape(k_desc.load([kv_head, slot, 0]), (BLOCK_N, WIDTH))
        scores = tl.dot(q, tl.trans(keys), input_precision="ieee")
        top, total, weights, fade = _weighed(scores, scale, top, total)
        values = tl.reshape(v_desc.load([kv_head, slot, 0]), (BLOCK_N, WIDTH))
        mixed = tl.dot(weights.to(values.dtype), values, mixed * fade[:, None], input_precision="ieee")
    present = m < tl.load(item + 6) * SHARE  # What follows are the queries of another tile.
    part = tl.load(item + 5) + m // SHARE
    stop = tl.load(item + 3)
    n = tl.load(item + 2) + tl.arange(0, SINGLE_N)
    for _ in range(tl.load(item + 2), stop, SINGLE_N):
        slot = tl.load(slots_K + n, mask=n < stop, other=0)
        here = (n < stop)[:, None] & (d < DIM)[None, :]
        part_stop = tl.load(part_stop_P + part, mask=present, other=0)
        keys = tl.load(k + (slot * k_slot)[:, None] + d[None, :], mask=here, other=0)
        scores = tl.dot(q, tl.trans(keys), input_precision="ieee")
        seen = (n[None, :] < part_stop[:, None]) & (n < stop)[None, :]
        top, total, weights, fade = _weighed(tl.where(seen, scores, float("-inf")), scale, top, total)
        values, odd = numbers_only(tl.load(v + (slot * v_slot)[:, None] + d[None, :], mask=here, other=0))
        mixed = tl.dot(weights.to(values.dtype), values, mixed * fade[:, None], input_precision="ieee")
        touch |= touched(seen, odd)
        n += SINGLE_N
    place = part.to(tl.int64) * heads + kv_head * SHARE + m % SHARE
    divisor = tl.where(total > 0, total, 1.0)
    out = spoiled(mixed / divisor[:, None], touch).to(out_PHD.dtype.element_ty)
    tl.store(out_PHD + (place * DIM)[:, None] + d[None, :], out, mask=present[:, None] & (d < DIM)[None, :])
    tl.store(lse_PH + place, tl.where(total > 0, (top + tl.log2(divisor)) / LOG2E, float("-inf")), mask=present)


@triton.jit
def attend_tiles(
    few_q_desc, many_q_desc, k_desc, v_desc, k_SGD, v_SGD, out_PHD, lse_PH, blocks_B, slots_K, items_I7, item_starts_W,
    part_stop_P, scale, k_slot, k_head, v_slot, v_head, heads,
    SHARE: tl.constexpr, DIM: tl.constexpr, WIDTH: tl.constexpr,
    FEW_M: tl.constexpr, MANY_M: tl.constexpr, BLOCK_N: tl.constexpr, SINGLE_N: tl.constexpr,
):  # fmt: skip
    """The tiles of one program: those of few readers wait for memory while other programs compute."""
    kv_head, program = tl.program_id(0), tl.program_id(1)
    k, v = k_SGD + kv_head.to(tl.int64) * k_head, v_SGD + kv_head.to(tl.int64) * v_head
    first, stop = tl.load(item_starts_W + program), tl.load(item_starts_W + program + 1)
    # What a tile needs is computed when its turn comes: kept from before, it would not fit into the registers.
    for number in tl.range(first, stop, num_stages=1, disable_licm=True):
        item = items_I7 + number * 7
        if tl.load(item + 6) * SHARE <= FEW_M:
            _tile(few_q_desc, k_desc, v_desc, k, v, out_PHD, lse_PH, blocks_B, slots_K, item, part_stop_P,
                  scale * LOG2E, k_slot, v_slot, kv_head, heads, SHARE, DIM, WIDTH, FEW_M, BLOCK_N,
                  SINGLE_N)  # fmt: skip
        else:
            _tile(many_q_desc, k_desc, v_desc, k, v, out_PHD, lse_PH, blocks_B, slots_K, item, part_stop_P,
                  scale * LOG2E, k_slot, v_slot, kv_head, heads, SHARE, DIM, WIDTH, MANY_M, BLOCK_N,
                  SINGLE_N)  # fmt: skip


@triton.jit
def join_parts(
    out_PHD, lse_PH, parts_P, part_starts_T, out_HTD, lse_HT, heads, out_head, out_row, lse_head,
    DIM: tl.constexpr, WIDTH: tl.constexpr, BLOCK_P: tl.constexpr,
):  # fmt: skip
    """One row and head: its parts in their order, weighted by their shares of the sum."""
    row, head = tl.program_id(0).to(tl.int64), tl.program_id(1).to(tl.int64)
    d = tl.arange(0, WIDTH)
    start, stop = tl.load(part_starts_T + row), tl.load(part_starts_T + row + 1)
    top = float("-inf")
    for at in range(start, stop, BLOCK_P):
        number = at + tl.arange(0, BLOCK_P)
        part = tl.load(parts_P + number, mask=number < stop, other=0)
        lse = tl.load(lse_PH + part * heads + head, mask=number < stop, other=float("-inf"))
        top = tl.maximum(top, tl.max(lse, 0))
    base = tl.where(top == float("-inf"), 0.0, top)
    total = 0.0
    mixed = tl.zeros((WIDTH,), tl.float32)
    for at in tl.range(start, stop, loop_unroll_factor=8):  # So many are loaded at once.
        part = tl.load(parts_P + at) * heads + head
        share = tl.exp(tl.load(lse_PH + part) - base)
        mixed += share * tl.load(out_PHD + part * DIM + d, mask=d < DIM, other=0)
        total += share
    divisor = tl.where(total > 0, total, 1.0)
    out = (mixed / divisor).to(out_HTD.dtype.element_ty)
    tl.store(out_HTD + head * out_head + row * out_row + d, out, mask=d < DIM)
    tl.store(lse_HT + head * lse_head + row, tl.where(total > 0, top + tl.log(divisor), float("-inf")))
