"""The tiny inputs of public bugs of attention kernels, given to ours in Triton's interpreter: a name and an error each.

A program of its own, as the interpreter is chosen when Triton is imported. New memory is filled with NaN, so that what
a kernel leaves unwritten shows. An error is the largest difference from the value that is right.
"""

from __future__ import annotations

import os

os.environ["TRITON_INTERPRET"] = "1"

from collections.abc import Iterator

import numpy as np
import torch
from interpreted_packed import SMALL, check
from interpreted_paged import Pool, expected
from numeric import causal_plan, make_plan
from random_graphs import random_episode
from torch import Tensor

from octopus.attention.dag import packed
from octopus.attention.dag.groups import Sight
from octopus.attention.dag.paged import PagedPass
from octopus.attention.exports import dense_view
from octopus.attention.libraries.kernel import LibraryPass
from octopus.attention.plan import Plan, Slice, lower
from octopus.attention.windowed import windowed

CPU = torch.device("cpu")


def largest(x: Tensor) -> float:
    """The largest absolute value; NaN if there is one."""
    return float(x.detach().abs().max()) if x.numel() else 0.0


def block(q0: int, q1: int, k0: int, k1: int, *, causal: bool = False) -> Slice:
    return Slice(q0=q0, q1=q1, k0=k0, k1=k1, causal=causal, shift=0)


# ---- packed ----


def packed_plans() -> Iterator[tuple[str, Plan, int, int]]:
    """`name, plan, query heads, key/value heads`: each against the float64 reference, gradients included."""
    rows = list(range(40))
    yield "window_masks_a_whole_tile", windowed(causal_plan(40), 2), 2, 1
    yield "first_tile_hidden", make_plan(rows, [block(0, 20, 20, 40), block(20, 40, 20, 40, causal=True)]), 2, 1
    yield "one_row_sees_nothing", make_plan(rows, [block(0, 7, 0, 7, causal=True), block(8, 40, 0, 7)]), 2, 1
    yield "three_heads_share", causal_plan(19), 6, 2
    yield "two_queries_of_five_keys", make_plan(rows[:5], [block(3, 5, 0, 3), block(3, 5, 3, 5, causal=True)]), 2, 1
    yield "not_causal", make_plan(rows[:24], [block(0, 24, 0, 24)]), 2, 1
    yield "shorter_than_a_tile", causal_plan(5), 2, 1
    empty = [block(0, 3, 0, 3, causal=True), block(3, 3, 0, 3), block(3, 5, 3, 5)]
    yield "an_empty_segment", make_plan(rows[:5], empty), 2, 1


def cut_causal_square() -> float:
    """A causal square as one slice, and as squares and rectangles: outputs and gradients."""
    ends = range(0, 41, 8)
    pieces = [block(a, a + 8, a, a + 8, causal=True) for a in ends[:-1]]
    pieces += [block(a, a + 8, 0, a) for a in ends[1:-1]]
    draw = torch.Generator().manual_seed(1)
    q, k, v, d_out = (torch.randn(heads, 40, 16, generator=draw) for heads in (4, 2, 2, 4))
    found = []
    for plan in (causal_plan(40), make_plan(list(range(40)), pieces)):
        made = LibraryPass.of("triton", plan, None, CPU, torch.float32, 16)
        out, lse = made.forward(q, k, v, 0.3)
        found.append((out, *made.backward(d_out, q, k, v, out, lse, 0.3)))
    return float(np.max([largest(a - b) for a, b in zip(*found, strict=True)]))


def eight_slices_on_the_same_rows() -> float:
    """The share of repeats that differ by a bit."""
    plan = make_plan(list(range(144)), [block(128, 144, a, a + 16) for a in range(0, 128, 16)])
    draw = torch.Generator().manual_seed(2)
    q, k, v, d_out = (torch.randn(2, 144, 16, generator=draw) for _ in range(4))
    made = LibraryPass.of("triton", plan, None, CPU, torch.float32, 16)

    def run() -> tuple[Tensor, ...]:
        out, lse = made.forward(q, k, v, 0.3)
        return (out, *made.backward(d_out, q, k, v, out, lse, 0.3))

    first = run()
    return float(np.mean([not all(map(torch.equal, first, run())) for _ in range(3)]))


def nan_of_others(seed: int) -> float:
    """A NaN in a key or a value is the NaN of those who see it, in outputs and gradients, and nobody else's."""
    plan = lower(random_episode(seed, size=30).graph.segments)
    draw = torch.Generator().manual_seed(seed)
    shape = (2, plan.length, 16)
    q, d_out = (torch.randn(shape, generator=draw) for _ in range(2))
    stored = [torch.randn(shape, generator=draw)[:1] for _ in range(2)]
    made = LibraryPass.of("triton", plan, None, CPU, torch.float32, 16)
    seen_TT = torch.from_numpy(dense_view(plan)[0])

    def run(k: Tensor, v: Tensor) -> list[Tensor]:
        out, lse = made.forward(q, k, v, 0.3)
        return [out, *made.backward(d_out, q, k, v, out, lse, 0.3)]

    clean, wrong = run(*stored), 0
    for row in torch.randperm(plan.length, generator=draw)[:4].tolist():
        reader_T = seen_TT[:, row]
        shared_T = seen_TT[reader_T].any(0)  # Keys whose gradient comes from somebody who sees the NaN.
        for which in (0, 1):
            odd = [x.clone() for x in stored]
            odd[which][:, row] = torch.nan
            out, dq, dk, dv = run(*odd)
            for got, before, of_T in ((out, clean[0], reader_T), (dq, clean[1], reader_T), (dk, clean[2], shared_T)):
                wrong += not torch.equal(got[:, ~of_T], before[:, ~of_T])
                wrong += not got[:, of_T].isnan().any(-1).all()
            wrong += not torch.equal(dv[:, ~shared_T], clean[3][:, ~shared_T])
    return float(wrong)


# ---- paged ----


def paged(pool: Pool, sights: list[Sight], q_HTD: Tensor, *, kv_heads: int, programs: int) -> tuple[Tensor, Tensor]:
    heads, rows, dim = q_HTD.shape
    made = PagedPass.of(
        sights, pool.slots_of, np.full(rows, 100), rope=None, heads=heads, kv_heads=kv_heads, head_dim=dim, device=CPU,
        programs=programs,
    )  # fmt: skip
    return made.attend(q_HTD, pool.keys, pool.values, scale=0.3)


def paged_case(lengths: list[int], sights: list[Sight], heads: int, kv_heads: int, programs: int = 1) -> float:
    """Outputs and log-sum-exps against one softmax a row."""
    pool, rows = Pool(3, lengths, kv_heads, 16), max(sight.row + sight.rows for sight in sights)
    q_HTD = torch.randn(heads, rows, 16, generator=torch.Generator().manual_seed(4))
    out, lse = expected(q_HTD, pool, sights, np.full(rows, 100), None, 0.3)
    got, got_lse = paged(pool, sights, q_HTD, kv_heads=kv_heads, programs=programs)
    seen = lse > -torch.inf
    assert torch.equal(got_lse > -torch.inf, seen)
    return largest(torch.cat([(got - out).flatten(), (got_lse - lse)[seen]]))


def weight_of_the_suffix(prefix: int) -> float:
    """With all scores 0, a suffix of one key of value 1 behind a prefix of zeros has the mean's weight."""
    pool = Pool(5, [prefix, 1], 1, 16)
    pool.values.nan_to_num_(0.0).zero_()
    pool.values[torch.from_numpy(pool.slots[1])] = 1.0
    sights = [Sight(0, 0, prefix, 0, 0, 2), Sight(1, 0, 1, 0, 0, 1)]
    out, lse = paged(pool, sights, torch.zeros(2, 2, 16), kv_heads=1, programs=1)
    return float(np.max([largest(out[:, 0] - 1 / (prefix + 1)), largest(lse[:, 0] - np.log(prefix + 1))]))


def heads_repeat() -> float:
    """Key/value head h holds h: query heads 0, 1 read head 0, query heads 2, 3 head 1."""
    pool = Pool(6, [5], 2, 16)
    pool.values[:] = torch.arange(2.0)[:, None]
    out, _ = paged(pool, [Sight(0, 0, 5, 0, 0, 1)], torch.randn(4, 1, 16), kv_heads=2, programs=1)
    return largest(out[:, 0, 0] - torch.tensor([0.0, 0.0, 1.0, 1.0]))


def where_pages_lie() -> float:
    """The share of page orders whose output differs by a bit."""
    q_HTD, sights = torch.randn(2, 1, 16, generator=torch.Generator().manual_seed(7)), [Sight(0, 0, 30, 0, 0, 1)]
    pool = Pool(8, [30], 1, 16)
    keys, values = (x[torch.from_numpy(pool.slots[0])] for x in (pool.keys, pool.values))
    found = []
    for seed in (9, 10, 11):
        other = Pool(seed, [30], 1, 16)
        for store, rows in ((other.keys, keys), (other.values, values)):
            store[torch.from_numpy(other.slots[0])] = rows
        found.append(paged(other, sights, q_HTD, kv_heads=1, programs=10**9)[0])
    return float(np.mean([not torch.equal(found[0], out) for out in found[1:]]))


def a_plan_after_another() -> float:
    """A pass with a short sight between two with a long one: nothing of a plan stays behind."""
    long, short = ([Sight(0, 0, stop, 0, 0, 1)] for stop in (20, 10))
    pool, q_HTD = Pool(12, [20], 1, 16), torch.randn(2, 1, 16, generator=torch.Generator().manual_seed(13))
    first, _, again = (paged(pool, sights, q_HTD, kv_heads=1, programs=1)[0] for sights in (long, short, long))
    return largest(first - again)


def paged_cases() -> Iterator[tuple[str, float]]:
    yield "nothing_and_something", paged_case([4], [Sight(0, 0, 4, 0, 2, 1)], 2, 1)
    yield "a_page_and_one_token", paged_case([17], [Sight(0, 0, 17, 0, 0, 1)], 2, 1)
    lengths = [Sight(0, 0, 5, 0, 0, 1), Sight(1, 0, 0, 0, 1, 1), Sight(2, 0, 61, 0, 2, 1)]
    yield "five_none_sixty_one", paged_case([5, 0, 61], lengths, 8, 2)
    yield "two_rows_of_their_own", paged_case([9, 9], [Sight(0, 0, 9, 0, 0, 1), Sight(1, 0, 9, 0, 1, 1)], 2, 1)
    yield "more_programs_than_keys", paged_case([3], [Sight(0, 0, 3, 0, 0, 1)], 2, 1, programs=10**9)
    for heads, kv_heads in ((12, 12), (8, 2), (7, 1)):
        yield f"{heads}_heads_of_{kv_heads}", paged_case([9], [Sight(0, 0, 9, 0, 0, 2)], heads, kv_heads)


if __name__ == "__main__":
    torch.use_deterministic_algorithms(True)  # Then new memory is NaN.
    packed.kernel_table = lambda head_dim: SMALL
    for name, plan, heads, kv_heads in packed_plans():
        print(name, np.max(check(plan, 0, heads, kv_heads, 16, 8)))  # Unlike `max`, not blind to NaN.
    for name, error in paged_cases():
        print(name, error)
    for prefix in (2, 3000):
        print(f"one_behind_{prefix}", weight_of_the_suffix(prefix))
    for seed in (1, 2):
        print(f"nan_of_others_{seed}", nan_of_others(seed))
    whole = (cut_causal_square, eight_slices_on_the_same_rows, heads_repeat, where_pages_lie, a_plan_after_another)
    for case in whole:
        print(case.__name__, case())
