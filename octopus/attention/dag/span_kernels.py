"""What the kernels over spans share: tiles, spans, masks and the loading of blocks.

Base addresses are 64-bit, offsets within a block 32-bit. Registers are scarce, so blocks that need no mask are loaded
through descriptors, and the rest of a span by addresses, in smaller blocks; for the same reason the kernels' loops keep
nothing from before that can be computed again (`disable_licm`).

Own rows o, other rows x; a tile is `first own row, stop, first span, stop span`, a span the columns of `spans.SPAN`.
"""

from __future__ import annotations

import triton
import triton.language as tl

LOG2E = tl.constexpr(1.4426950408889634)


@triton.jit
def tile_at(tiles_N4, number, BLOCK: tl.constexpr):
    """First own row, which rows of a block are there, first span, stop span."""
    tile = tiles_N4 + number * 4
    t0 = tl.load(tile)
    return t0, tl.arange(0, BLOCK) < tl.load(tile + 1) - t0, tl.load(tile + 2), tl.load(tile + 3)


@triton.jit
def span_at(spans_S7, number, BLOCK: tl.constexpr):
    """`x0, x1`, the other rows to which the span shows something, and where whole blocks without a mask end."""
    span = spans_S7 + number * 7
    x0, x1 = tl.load(span), tl.load(span + 1)
    return x0, x0 + tl.load(span + 6) * ((x1 - x0) // BLOCK * BLOCK), x1


@triton.jit
def shown(spans_S7, number, o, x, x1):
    """Which cells of a block a span shows; own rows down, other rows across."""
    span = spans_S7 + number * 7
    o0, o1, low, high = tl.load(span + 2), tl.load(span + 3), tl.load(span + 4), tl.load(span + 5)
    apart = x[None, :] - o[:, None]
    return ((o >= o0) & (o < o1))[:, None] & (x < x1)[None, :] & (apart >= low) & (apart <= high)


@triton.jit
def rows_at(base, stride, BLOCK: tl.constexpr, DIM: tl.constexpr):
    """Pointers to a block of rows, the first of which lies at `base`."""
    return base + (tl.arange(0, BLOCK) * stride)[:, None] + tl.arange(0, DIM)[None, :]


@triton.jit
def some_rows(base, stride, at, here, BLOCK: tl.constexpr, DIM: tl.constexpr):
    """Rows `[at, at + BLOCK)`; 0 for those that are not here."""
    return tl.load(rows_at(base + at * stride, stride, BLOCK, DIM), mask=here[:, None], other=0)


@triton.jit
def all_rows(desc, head, at, BLOCK: tl.constexpr, DIM: tl.constexpr):
    """Rows `[at, at + BLOCK)` of a head."""
    return tl.reshape(desc.load([tl.cast(head, tl.int32), tl.cast(at, tl.int32), 0]), (BLOCK, DIM))


@triton.jit
def numbers_only(rows):
    """The rows with 0 for what is no finite number, and which rows had such. A weight of 0 does not silence a NaN."""
    fine = tl.abs(rows.to(tl.float32)) < float("inf")
    return tl.where(fine, rows, 0.0).to(rows.dtype), tl.max((~fine).to(tl.int32), 1) > 0


@triton.jit
def touched(seen, odd):
    """1 for each row that sees an odd one, else 0."""
    return tl.max((seen & odd[None, :]).to(tl.int32), 1)


@triton.jit
def spoiled(summed, touch):
    """The sums with NaN for the rows that were touched. Once, at the end: products under way own their sums."""
    return tl.where((touch > 0)[:, None], float("nan"), summed)


@triton.jit
def log_sums(lse, x, here, MASKED: tl.constexpr):
    """In base 2; infinite for a row that sees nothing, as exp2(... - inf) is 0."""
    if MASKED:
        natural = tl.load(lse + x, mask=here, other=float("inf"))
    else:
        natural = tl.load(lse + x)
    return tl.where(natural == float("-inf"), float("inf"), natural) * LOG2E
