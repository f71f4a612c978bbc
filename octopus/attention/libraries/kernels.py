"""Pointwise kernels of one pass each: rotating rows, summing parts, joining parts by log-sum-exp.

Rows lie in tensors `[H, N, D]` of any strides whose last dimension is contiguous; a result may be `[G, S, N, D]` with
G * S heads. All addresses are 64-bit, all arithmetic is float32. Up to `MOST_PARTS` inputs are read side by side, so
that no sum passes through memory.
"""

from __future__ import annotations

import triton
import triton.language as tl
from torch import Tensor

MOST_PARTS = 4
ROWS = 16  # Rows of one program.


@triton.jit
def _rows(x, head, stride_h, n, stride_n, d, mask):
    """A tile of rows in float32, 0 where masked."""
    at = head * stride_h + n * stride_n
    return tl.load(x + at[:, None] + d[None, :], mask=mask, other=0).to(tl.float32)


@triton.jit
def _rotate_kernel(
    x0, x1, x2, x3, out, cos_NR, sin_NR, rows_N, sign, count,
    h0, n0, h1, n1, h2, n2, h3, n3, g_out, h_out, n_out,
    PARTS: tl.constexpr, GATHER: tl.constexpr, HALF: tl.constexpr, DIM: tl.constexpr, WIDTH: tl.constexpr,
    SHARE: tl.constexpr, ROWS: tl.constexpr,
):  # fmt: skip
    n = tl.program_id(0).to(tl.int64) * ROWS + tl.arange(0, ROWS)
    head = tl.program_id(1).to(tl.int64)
    d = tl.arange(0, WIDTH)
    inside = (n < count)[:, None] & (d < DIM)[None, :]
    turning = inside & (d < 2 * HALF)[None, :]
    # Dimension i < R turns with i + R: (x_i cos - x_{i+R} sin, x_{i+R} cos + x_i sin).
    partner = tl.where(d < HALF, d + HALF, d - HALF)
    source = tl.load(rows_N + n, mask=n < count, other=0) if GATHER else n
    own = _rows(x0, head, h0, source, n0, d, inside)
    other = _rows(x0, head, h0, source, n0, partner, turning)
    if PARTS > 1:
        own += _rows(x1, head, h1, n, n1, d, inside)
        other += _rows(x1, head, h1, n, n1, partner, turning)
    if PARTS > 2:
        own += _rows(x2, head, h2, n, n2, d, inside)
        other += _rows(x2, head, h2, n, n2, partner, turning)
    if PARTS > 3:
        own += _rows(x3, head, h3, n, n3, d, inside)
        other += _rows(x3, head, h3, n, n3, partner, turning)
    angle = n[:, None] * HALF + tl.where(d < HALF, d, partner)[None, :]
    cos = tl.load(cos_NR + angle, mask=turning, other=1)
    sin = tl.load(sin_NR + angle, mask=turning, other=0) * tl.where(d < HALF, -sign, sign)[None, :]
    at = head // SHARE * g_out + head % SHARE * h_out + n * n_out
    tl.store(out + at[:, None] + d[None, :], (own * cos + other * sin).to(out.dtype.element_ty), mask=inside)


@triton.jit
def _join_kernel(
    x0, x1, x2, x3, lse0, lse1, lse2, lse3, out, lse_out, count,
    h0, n0, h1, n1, h2, n2, h3, n3, s0, s1, s2, s3, h_out, n_out, s_out,
    PARTS: tl.constexpr, DIM: tl.constexpr, WIDTH: tl.constexpr, ROWS: tl.constexpr,
):  # fmt: skip
    n = tl.program_id(0).to(tl.int64) * ROWS + tl.arange(0, ROWS)
    head = tl.program_id(1).to(tl.int64)
    d = tl.arange(0, WIDTH)
    inside = (n < count)[:, None] & (d < DIM)[None, :]
    nothing = float("-inf")
    l0 = tl.load(lse0 + head * s0 + n, mask=n < count, other=nothing)
    l1 = tl.load(lse1 + head * s1 + n, mask=n < count, other=nothing) if PARTS > 1 else l0
    l2 = tl.load(lse2 + head * s2 + n, mask=n < count, other=nothing) if PARTS > 2 else l0
    l3 = tl.load(lse3 + head * s3 + n, mask=n < count, other=nothing) if PARTS > 3 else l0
    top = tl.maximum(tl.maximum(l0, l1), tl.maximum(l2, l3))
    base = tl.where(top == nothing, 0.0, top)  # -inf - -inf is NaN.
    # Rows of weight 0 are not read: an empty part's output may be anything.
    w0 = tl.exp(l0 - base)
    total = w0
    mixed = w0[:, None] * _rows(x0, head, h0, n, n0, d, inside & (w0 > 0)[:, None])
    if PARTS > 1:
        w1 = tl.exp(l1 - base)
        total += w1
        mixed += w1[:, None] * _rows(x1, head, h1, n, n1, d, inside & (w1 > 0)[:, None])
    if PARTS > 2:
        w2 = tl.exp(l2 - base)
        total += w2
        mixed += w2[:, None] * _rows(x2, head, h2, n, n2, d, inside & (w2 > 0)[:, None])
    if PARTS > 3:
        w3 = tl.exp(l3 - base)
        total += w3
        mixed += w3[:, None] * _rows(x3, head, h3, n, n3, d, inside & (w3 > 0)[:, None])
    whole = tl.where(total > 0, total, 1.0)
    at = head * h_out + n * n_out
    tl.store(out + at[:, None] + d[None, :], (mixed / whole[:, None]).to(out.dtype.element_ty), mask=inside)
    tl.store(lse_out + head * s_out + n, tl.where(total > 0, base + tl.log(whole), nothing), mask=n < count)


def rotate(
    parts: list[Tensor], out_GSND: Tensor, cos_NR: Tensor, sin_NR: Tensor, rows_N: Tensor | None, sign: int
) -> None:
    """Writes the sum of 1 to `MOST_PARTS` parts `[H, N, D]`, each row rotated by its angle times `sign`.

    Args:
        parts: what is summed. With `rows_N` there is one, `[H, any, D]`, and row n of the result is its `rows_N[n]`.
        out_GSND: where the result goes, in its dtype; head h is `h // S, h % S`.
        cos_NR, sin_NR: float32, contiguous; `R = 0` rotates nothing.
        rows_N: int64, or None.
        sign: 1, or -1 to rotate back.
    """
    groups, share, count, dim = out_GSND.shape
    if not out_GSND.numel():
        return
    padded = (parts + [parts[0]] * MOST_PARTS)[:MOST_PARTS]
    strides = [stride for x in padded for stride in x.stride()[:2]]
    _rotate_kernel[(triton.cdiv(count, ROWS), groups * share)](
        *padded, out_GSND, cos_NR, sin_NR, cos_NR if rows_N is None else rows_N, float(sign), count,
        *strides, *out_GSND.stride()[:3],
        PARTS=len(parts), GATHER=rows_N is not None, HALF=cos_NR.shape[1], DIM=dim,
        WIDTH=triton.next_power_of_2(dim), SHARE=share, ROWS=ROWS,
    )  # fmt: skip


def join(parts: list[tuple[Tensor, Tensor]], out_HND: Tensor, lse_HN: Tensor) -> None:
    """Writes attention over the union of the keys of 1 to `MOST_PARTS` parts `(out [H, N, D], lse [H, N])`.

    A part's row with LSE -inf saw nothing and is not read. The parts' LSEs are float32, natural-log, contiguous in N.
    """
    heads, count, dim = out_HND.shape
    if not out_HND.numel():
        return
    padded = (parts + [parts[0]] * MOST_PARTS)[:MOST_PARTS]
    outs, lses = [out for out, _ in padded], [lse for _, lse in padded]
    _join_kernel[(triton.cdiv(count, ROWS), heads)](
        *outs, *lses, out_HND, lse_HN, count,
        *(stride for x in outs for stride in x.stride()[:2]), *(x.stride(0) for x in lses),
        *out_HND.stride()[:2], lse_HN.stride(0),
        PARTS=len(parts), DIM=dim, WIDTH=triton.next_power_of_2(dim), ROWS=ROWS,
    )  # fmt: skip
