"""Layers with a sliding window: who sees whom, by brute force and as the library says it, and every engine over it.

Letters: T rows, H query heads, G key/value heads, D head dimension.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial

import numpy as np
import pytest
import torch
from dense_engine import dense_engine
from numeric import RESULTS, causal_plan, make_plan, make_rope, random_inputs, random_plan, with_gradients
from random_graphs import lowered, random_episode
from torch import Tensor
from transformers.masking_utils import sliding_window_causal_mask_function

from octopus.attention import slice_batches, windowed
from octopus.attention.backends import attend
from octopus.attention.exports import dense_view
from octopus.attention.plan import Plan, Slice
from octopus.attention.rope import Rope, apply_rope
from octopus.attention.slice_batches import group_slices, make_batch

PAGE = 4  # Windows around the size of a page: a window knows no pages, and must not.
WINDOWS = (1, 2, PAGE - 1, PAGE, PAGE + 1, 10_000)
BACKENDS = ("reference", "sliced", "sliced-dense")


@pytest.fixture(autouse=True)
def _engine() -> Iterator[None]:
    with dense_engine():
        yield


def near_by_hand(plan: Plan, window: int | None) -> np.ndarray:
    """Who sees whom, pair by pair: the whole view less what stands `window` positions or more before the row."""
    visible_TT, seen_at_TT = dense_view(plan)
    return visible_TT if window is None else visible_TT & (seen_at_TT > plan.positions_T[:, None] - window)


def near_pairs(plan: Plan) -> np.ndarray:
    """How many slices show each pair."""
    counts_TT = np.zeros((plan.length, plan.length), dtype=np.int64)
    for s in plan.slices:
        square_NN = np.tri(s.q1 - s.q0, dtype=np.int64)
        counts_TT[s.q0 : s.q1, s.k0 : s.k1] += square_NN if s.causal else square_NN.T if s.mirrored else 1
    return counts_TT


@pytest.mark.parametrize("window", [1, 2, 3, 5, 17, 60, 10_000])
def test_a_row_sees_what_stands_in_its_window(window: int) -> None:
    """Catches: an off-by-one at the window's edge, rows taken for positions, a mount measured where it was written.

    Also a pair in two slices, and shifts lost on the way.
    """
    episodes = [lowered(random_episode(seed, size=100 if seed % 5 == 0 else 40))[0] for seed in range(20)]
    square = Slice(q0=0, q1=8, k0=0, k1=8, causal=True, shift=0)
    jumping = make_plan([0, 1, 2, 7, 8, 9, 30, 31], [square])  # No segment jumps, but a plan made by hand may.
    for plan in [jumping, *episodes, *(random_plan(seed, segments=9, longest=7) for seed in range(40))]:
        near = windowed.windowed(plan, window)
        expected_TT = near_by_hand(plan, window)
        np.testing.assert_array_equal(near_pairs(near), expected_TT)
        assert near.pairs == expected_TT.sum()
        np.testing.assert_array_equal(dense_view(near)[1][expected_TT], dense_view(plan)[1][expected_TT])


def test_the_random_episodes_reach_the_edges() -> None:
    """Catches: a generator gone dull. Mounts wholly outside, partly outside and inside of a window must all occur."""
    inside = set()
    for seed in range(30):
        plan, _ = lowered(random_episode(seed, size=40))
        near_TT = near_by_hand(plan, 5)
        inside |= {
            0 if not share else 2 if share == 1 else 1
            for s in plan.slices
            if s.shift
            for share in near_TT[s.q0 : s.q1, s.k0 : s.k1].mean(axis=1).tolist()
        }
    assert inside == {0, 1, 2}


@pytest.mark.parametrize("rows", [1, 2, 7, 40])
@pytest.mark.parametrize("window", [1, 2, 6, 7, 8, 39, 40, 41, 4_096])
def test_a_plain_row_has_the_window_of_the_library(rows: int, window: int) -> None:
    """Catches: a window that does not count the row itself, or counts one more; wherever the row begins."""
    q_T1, k_1T = torch.arange(rows)[:, None], torch.arange(rows)[None]
    library_TT = sliding_window_causal_mask_function(window)(0, 0, q_T1, k_1T)
    near = windowed.windowed(causal_plan(rows, start_position=1_000), window)
    np.testing.assert_array_equal(dense_view(near)[0], library_TT.numpy())


def test_only_what_is_seen_is_computed() -> None:
    """Catches: a band computed as a rectangle or a whole triangle, slices that grow with the square of the windows."""
    plan = causal_plan(10_000)
    near = windowed.windowed(plan, 100)
    assert near.pairs == 100 * 101 // 2 + 9_900 * 100
    assert len(near.slices) == 2 * 100 - 1


def brute(
    q_HTD: Tensor, k_GTD: Tensor, v_GTD: Tensor, *, plan: Plan, rope: Rope | None, scale: float, window: int | None
) -> tuple[Tensor, Tensor]:
    """Attention row by row over the pairs found by hand; blind rows give 0 and -inf."""
    near_TT, (_, seen_at_TT) = near_by_hand(plan, window), dense_view(plan)
    group, outs, lses = len(q_HTD) // len(k_GTD), [], []
    for row, at in enumerate(plan.positions_T.tolist()):
        keys_K = torch.from_numpy(np.flatnonzero(near_TT[row]))
        q_H1D = apply_rope(rope, q_HTD[:, row : row + 1], torch.tensor([at]))
        k_GKD = apply_rope(rope, k_GTD[:, keys_K], torch.from_numpy(seen_at_TT[row])[keys_K])
        scores_H1K = q_H1D @ k_GKD.repeat_interleave(group, 0).mT * scale
        outs.append(scores_H1K.softmax(-1) @ v_GTD[:, keys_K].repeat_interleave(group, 0))
        lses.append(scores_H1K.logsumexp(-1))
    return torch.cat(outs, 1), torch.cat(lses, 1).detach()


@pytest.mark.parametrize("window", [*WINDOWS, None])
@pytest.mark.parametrize("backend", BACKENDS)
def test_engines_equal_brute_force(backend: str, window: int | None) -> None:
    """Catches: mirrored squares read forwards, merged before or over a causal one, or whose gradients are lost."""
    for seed in range(6):
        plan = lowered(random_episode(seed, size=30))[0] if seed % 2 else random_plan(seed, segments=9, longest=7)
        inputs = random_inputs(plan.length, kv_heads=2, group=2, head_dim=6, seed=seed)
        options = {"plan": plan, "rope": make_rope(4) if seed % 3 else None, "scale": 0.4, "window": window}
        expected = with_gradients(brute, *inputs, **options)
        actual = with_gradients(partial(attend, backend=backend), *inputs, **options)
        for name, a, b in zip(RESULTS, actual, expected, strict=True):
            torch.testing.assert_close(
                a, b, rtol=0, atol=1e-12, msg=lambda text, name=name, seed=seed: f"plan {seed}, {name}: {text}"
            )


@pytest.mark.parametrize("small_pairs", [0, 2**16])
def test_long_rows_in_tiles_and_batches_of_every_size(small_pairs: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Catches: padding of a mirrored square left visible, squares cut at a tile's edge, lengths that fit no bucket."""
    monkeypatch.setattr(slice_batches, "SMALL_PAIRS", small_pairs)
    plan = lowered(random_episode(5, size=150))[0]
    inputs = random_inputs(plan.length, kv_heads=1, group=2, head_dim=4)
    for window in (33, 64, 65):
        options = {"plan": plan, "rope": make_rope(4), "scale": 0.4, "window": window}
        expected = with_gradients(brute, *inputs, **options)
        actual = with_gradients(partial(attend, backend="sliced"), *inputs, **options)
        for name, a, b in zip(RESULTS, actual, expected, strict=True):
            torch.testing.assert_close(a, b, rtol=0, atol=1e-12, msg=lambda text, name=name: f"{name}: {text}")


def forwards(spans: object, *, backwards: bool, honest: Callable[..., object] = slice_batches._padded) -> object:
    return honest(spans, backwards=False)


def one_more(plan: Plan, window: int | None, honest: Callable[..., Plan] = windowed.windowed) -> Plan:
    return honest(plan, None if window is None else window + 1)


@pytest.mark.parametrize(
    ("target", "fault"),
    [
        ("octopus.attention.slice_batches._padded", forwards),
        ("octopus.attention.backends.windowed", one_more),
        ("octopus.attention.backends.windowed", lambda plan, window: plan),
    ],
    ids=["mirrored squares read forwards", "a window of one more", "the window forgotten"],
)
def test_planted_faults_are_seen(target: str, fault: Callable[..., object], monkeypatch: pytest.MonkeyPatch) -> None:
    """The test of the tests: each of these must break the comparison above."""
    monkeypatch.setattr(target, fault)
    with pytest.raises(AssertionError):
        test_engines_equal_brute_force("sliced", 3)


@pytest.mark.parametrize("backend", BACKENDS)
def test_poison_outside_the_window(backend: str) -> None:
    """Catches: what a row has left behind reaching it, to the bit, or getting a gradient from it.

    The loss is taken over the rows that do not see the slot, so no gradient at all may change.
    """
    plan, window = lowered(random_episode(3, size=40))[0], 2
    view_TT, near_TT = dense_view(plan)[0], near_by_hand(plan, window)
    left_behind = np.flatnonzero(view_TT.sum(0) > near_TT.sum(0))
    assert len(left_behind) > 10
    options = {"plan": plan, "rope": make_rope(4), "scale": 0.4, "window": window, "backend": backend}
    for key in left_behind[::4].tolist():
        blind_T = torch.from_numpy(~near_TT[:, key])
        inputs = random_inputs(plan.length, kv_heads=2, group=2, head_dim=6)
        _, k_GTD, v_GTD, d_out_HTD = inputs
        d_out_HTD[:, ~blind_T] = 0
        before = with_gradients(attend, *inputs, **options)
        k_GTD[:, key] = v_GTD[:, key] = 1e4
        after = with_gradients(attend, *inputs, **options)
        for name, old, new in zip(RESULTS, before, after, strict=True):
            rows_T = blind_T if name in ("out", "lse") else torch.ones_like(blind_T)
            assert torch.equal(old[:, rows_T], new[:, rows_T]), name
        assert not after[3][:, key].any() and not after[4][:, key].any()


def test_a_nan_that_all_have_left_behind_comes_out_nowhere() -> None:
    """Catches: a hidden slot in a product with weight 0. A mount that lies far before its reader is seen by nobody."""
    far = Slice(q0=0, q1=4, k0=4, k1=7, causal=False, shift=0)
    plan = make_plan([50, 51, 52, 53, 0, 1, 2], [Slice(q0=0, q1=4, k0=0, k1=4, causal=True, shift=0), far])
    inputs = random_inputs(7, kv_heads=1, group=2, head_dim=4)
    for backend in BACKENDS:
        options = {"plan": plan, "rope": make_rope(4), "scale": 0.4, "window": 8, "backend": backend}
        clean = with_gradients(attend, *inputs, **options)
        q_HTD, k_GTD, v_GTD, d_out_HTD = (x.clone() for x in inputs)
        k_GTD[:, 4:] = v_GTD[:, 4:] = torch.nan
        for a, b in zip(with_gradients(attend, q_HTD, k_GTD, v_GTD, d_out_HTD, **options), clean, strict=True):
            assert torch.equal(a, b), backend


@pytest.mark.parametrize("seed", range(6))
def test_batches_do_not_mix_kinds(seed: int) -> None:
    """Catches: mirrored and whole slices padded alike, a batch that overwrites rows that another has filled."""
    near = windowed.windowed(random_plan(seed, segments=20, longest=30), 6)
    assert any(s.mirrored for s in near.slices)
    batches = list(group_slices(near))
    assert sorted(map(repr, (s for batch in batches for s in batch))) == sorted(map(repr, near.slices))
    filled: set[int] = set()
    for slices in batches:
        assert len({(s.causal, s.mirrored, s.shift == 0) for s in slices}) == 1
        batch = make_batch(
            slices,
            positions_T=torch.from_numpy(near.positions_T),
            group=1,
            query_positions=lambda positions_N, shift: positions_N - shift,
            device=torch.device("cpu"),
        )
        rows = set(batch.rows_F.tolist())
        assert not (batch.first and rows & filled)
        filled |= rows


def test_a_plan_is_windowed_once_a_window(monkeypatch: pytest.MonkeyPatch) -> None:
    """Catches: a plan lowered anew by every layer, a window's plan given to another, a copy where nothing is hidden."""
    made, honest = [], windowed._near
    monkeypatch.setattr(windowed, "_near", lambda plan, window: made.append(window) or honest(plan, window))
    plan = causal_plan(12)
    inputs = random_inputs(12, kv_heads=1, group=1, head_dim=4)
    layers = (3, None, 5, 3, 12, 12, 5)
    outs = [attend(*inputs[:3], plan=plan, rope=None, scale=1.0, backend="sliced", window=w)[0] for w in layers]
    assert made == [3, 5, 12]
    assert windowed.windowed(plan, 12) is plan and windowed.windowed(plan, None) is plan
    assert windowed.windowed(plan, 3) is windowed.windowed(plan, 3)
    assert torch.equal(outs[0], outs[3]) and torch.equal(outs[1], outs[4]) and not torch.equal(outs[0], outs[2])


@pytest.mark.parametrize("window", [0, -1])
def test_an_empty_window_is_refused(window: int) -> None:
    """Catches: a configuration's 0, which often means `none`, taken for a window."""
    inputs = random_inputs(3, kv_heads=1, group=1, head_dim=4)
    with pytest.raises(ValueError, match=f"1 position or more, since a row sees itself; not {window}"):
        attend(*inputs[:3], plan=causal_plan(3), rope=None, scale=1.0, backend="sliced", window=window)
