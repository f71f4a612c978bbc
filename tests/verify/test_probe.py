"""The probes of attention callables, against plans whose visibility and positions are known.

Catches a probe that rounds a small weight away, that takes a head for another, or that believes what a kernel was told.
"""

from __future__ import annotations

from functools import partial

import numpy as np
import pytest
import torch
from random_graphs import lowered, random_episode
from torch import Tensor
from torch.nn.functional import scaled_dot_product_attention

from octopus.attention.backends import attend, available_backends
from octopus.attention.exports import dense_view
from octopus.attention.rope import Rope
from octopus.verify.probe import Shape, probe
from octopus.verify.probe_positions import probe_distances, probe_unturned

DTYPES = (torch.float64, torch.float32, torch.bfloat16)
FREQUENCIES_R = 100.0 ** (-np.arange(8) / 8)


def shape_of(rows: int, dtype: torch.dtype, *, head_dim: int = 16) -> Shape:
    return Shape(heads=4, kv_heads=2, queries=rows, keys=rows, head_dim=head_dim, dtype=dtype)


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("backend", available_backends())
def test_a_backend_applies_its_plan(backend: str, dtype: torch.dtype) -> None:
    for seed in range(3):
        plan, _ = lowered(random_episode(seed, size=22))
        attention = partial(attend, plan=plan, rope=None, scale=1.0, backend=backend)
        probed = probe(attention, shape_of(plan.length, dtype))
        seen = dense_view(plan)[0]
        assert (probed.seen_HNK == seen).all() and (probed.times_HNK == seen).all()
        assert np.rint(probed.counted_HN).astype(int).tolist() == [seen.sum(axis=1).tolist()] * 4
        assert probed.kv_head_H.tolist() == [0, 0, 1, 1]


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_distances_are_those_of_shifted_mounts(dtype: torch.dtype) -> None:
    rope = Rope(inverse_frequencies_R=torch.from_numpy(FREQUENCIES_R))
    shifted = 0
    for seed in range(6):
        plan, _ = lowered(random_episode(seed, size=40))
        attention = partial(attend, plan=plan, rope=rope, scale=0.25, backend="sliced")
        shape = shape_of(plan.length, dtype, head_dim=24)
        found = probe_distances(attention, shape, inverse_frequencies_R=FREQUENCIES_R, scale=0.25)
        seen, seen_at = dense_view(plan)
        expected = np.where(seen, plan.positions_T[:, None] - seen_at, np.nan)
        assert np.array_equal(np.rint(found), expected, equal_nan=True)
        assert not probe_unturned(attention, shape, rotary_dim=16, scale=0.25).any()
        assert probe_unturned(attention, shape, rotary_dim=8, scale=0.25).any()
        shifted += sum(piece.shift != 0 for piece in plan.slices)
    assert shifted


def masked(mask_NK: Tensor, q_HND: Tensor, k_GKD: Tensor, v_GKD: Tensor) -> Tensor:
    return scaled_dot_product_attention(
        q_HND[None], k_GKD[None], v_GKD[None], attn_mask=mask_NK, enable_gqa=True
    )[0]


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_a_mask_that_hides_too_little_is_seen_through(dtype: torch.dtype) -> None:
    hidden = torch.ones(9, 9, dtype=torch.bool).triu(1)
    weak = torch.zeros(9, 9, dtype=dtype).masked_fill(hidden, -3.0)
    assert probe(partial(masked, weak), shape_of(9, dtype)).visible_NK.all()
    strong = weak.masked_fill(hidden, torch.finfo(dtype).min)
    assert np.array_equal(
        probe(partial(masked, strong), shape_of(9, dtype)).visible_NK, np.tri(9, dtype=bool)
    )


def test_decoding_has_fewer_queries_than_keys() -> None:
    mask = torch.rand(3, 40, generator=torch.Generator().manual_seed(0)) < 0.5
    shape = Shape(heads=2, kv_heads=1, queries=3, keys=40, head_dim=8, dtype=torch.float32)
    probed = probe(partial(masked, mask), shape)
    assert np.array_equal(probed.visible_NK, mask.numpy())
    assert probed.counted_HN is None


def test_rows_that_give_no_number_see_nothing_and_are_told() -> None:
    def broken(q_HND: Tensor, k_GKD: Tensor, v_GKD: Tensor) -> Tensor:
        out_HND = masked(torch.ones(4, 4, dtype=torch.bool).tril(), q_HND, k_GKD, v_GKD)
        out_HND[:, 2] = torch.nan
        return out_HND

    probed = probe(broken, shape_of(4, torch.float32))
    assert probed.not_a_number_HN[0].tolist() == [False, False, True, False]
    assert not probed.visible_NK[2].any() and probed.visible_NK[3].all()


def test_a_mixed_head_is_no_head() -> None:
    def mixed(q_HND: Tensor, k_GKD: Tensor, v_GKD: Tensor) -> Tensor:
        out_HND = masked(torch.ones(4, 4, dtype=torch.bool).tril(), q_HND, k_GKD, v_GKD)
        return torch.cat([out_HND[:1] * 0.25 + out_HND[-1:] * 0.75, out_HND[1:]])

    assert probe(mixed, shape_of(4, torch.float64)).kv_head_H.tolist()[1:] == [0, 1, 1]
    assert probe(mixed, shape_of(4, torch.float64)).kv_head_H[0] != 0


def test_another_shape_is_refused() -> None:
    with pytest.raises(ValueError, match=r"not \[heads 4, rows 4, head dimension 16\]"):
        probe(lambda q, k, v: v, shape_of(4, torch.float32))
