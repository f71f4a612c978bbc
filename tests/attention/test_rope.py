"""Rotary embedding against the formula, written with complex numbers in numpy."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from numeric import make_rope

from octopus.attention.rope import Rope, apply_rope

POSITIONS = [0, 1, 2, 257, 15_962, 262_143, -3]


def rotated_by_formula(x_XTD: np.ndarray, positions: list[int], frequencies_R: np.ndarray) -> np.ndarray:
    """Dimensions i and i + R are the real and imaginary part of one number, turned by position * frequency."""
    half = len(frequencies_R)
    numbers = x_XTD[..., :half] + 1j * x_XTD[..., half : 2 * half]
    turned = numbers * np.exp(1j * np.outer(positions, frequencies_R))
    return np.concatenate([turned.real, turned.imag, x_XTD[..., 2 * half :]], axis=-1)


@pytest.mark.parametrize(("head_dim", "rotary_dim"), [(8, 8), (8, 4), (256, 64), (6, 0)])
def test_equals_the_formula(head_dim: int, rotary_dim: int) -> None:
    """Catches: interleaved pairs, pair offset taken from the head dimension, turning the wrong way."""
    rope = make_rope(rotary_dim)
    x_HTD = torch.randn(3, len(POSITIONS), head_dim, dtype=torch.float64)
    expected = rotated_by_formula(x_HTD.numpy(), POSITIONS, rope.inverse_frequencies_R.numpy())
    torch.testing.assert_close(
        rope.rotate(x_HTD, torch.tensor(POSITIONS)), torch.from_numpy(expected), rtol=0, atol=1e-13
    )
    assert rope.rotary_dim == rotary_dim


def test_dimensions_beyond_the_rotary_ones_pass_through_to_the_bit() -> None:
    """Catches: rotating every dimension under partial rotary."""
    x_HTD = torch.randn(2, len(POSITIONS), 16)
    y_HTD = make_rope(4).rotate(x_HTD, torch.tensor(POSITIONS))
    assert torch.equal(y_HTD[..., 4:], x_HTD[..., 4:])
    assert not torch.equal(y_HTD[..., :4], x_HTD[..., :4])


def test_positions_may_differ_between_blocks() -> None:
    """Catches: the first block's positions taken for all, positions laid along the wrong dimension."""
    rope, positions_B1T = make_rope(4), torch.tensor([[[0, 1, 2]], [[7, -3, 2**17]]])
    x_BHTD = torch.randn(2, 4, 3, 6, dtype=torch.float64)
    blocks = [
        rope.rotate(x_HTD, position_1T[0]) for x_HTD, position_1T in zip(x_BHTD, positions_B1T, strict=True)
    ]
    assert torch.equal(rope.rotate(x_BHTD, positions_B1T), torch.stack(blocks))


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_far_positions_keep_float32_precision(dtype: torch.dtype) -> None:
    """Catches: angles, cosines or products computed in float32 or bfloat16."""
    rope = make_rope(64, base=1e7)
    x_TD = torch.randn(len(POSITIONS), 64).to(dtype)
    exact_TD = rope.rotate(x_TD.double(), torch.tensor(POSITIONS))
    y_TD = rope.rotate(x_TD, torch.tensor(POSITIONS))
    assert y_TD.dtype == torch.float32
    torch.testing.assert_close(y_TD.double(), exact_TD, rtol=0, atol=2e-6)


def test_a_negative_position_undoes_and_transposes() -> None:
    """Catches: a rotation that scales (an attention factor inside), an inverse that is not the gradient's transpose."""
    rope, positions = make_rope(6), torch.tensor([5, 1000, 77])
    x_TD = torch.randn(3, 8, dtype=torch.float64, requires_grad=True)
    y_TD = rope.rotate(x_TD, positions)
    torch.testing.assert_close(rope.rotate(y_TD, -positions), x_TD, rtol=0, atol=1e-14)
    d_TD = torch.randn(3, 8, dtype=torch.float64)
    (gradient_TD,) = torch.autograd.grad(y_TD, x_TD, d_TD)
    torch.testing.assert_close(gradient_TD, rope.rotate(d_TD, -positions), rtol=0, atol=1e-14)


@pytest.mark.parametrize("shift", [3, -250])
def test_moving_the_query_back_scores_like_moving_the_key_ahead(shift: int) -> None:
    """Catches: a shift of the wrong sign in the identity that mounts stand on."""
    rope, position = make_rope(8), torch.tensor([400])
    q_1D, k_1D = torch.randn(2, 1, 12, dtype=torch.float64)
    moved_key = rope.rotate(q_1D, position) @ rope.rotate(k_1D, torch.tensor([300 + shift])).mT
    moved_query = rope.rotate(q_1D, position - shift) @ rope.rotate(k_1D, torch.tensor([300])).mT
    torch.testing.assert_close(moved_query, moved_key, rtol=0, atol=1e-12)


def test_without_rope_only_the_dtype_is_promoted() -> None:
    """Catches: a rotation or a rounding on models without positions."""
    x_TD = torch.randn(3, 4).to(torch.bfloat16)
    y_TD = apply_rope(None, x_TD, torch.tensor([1, 2, 3]))
    assert y_TD.dtype == torch.float32
    assert torch.equal(y_TD, x_TD.float())
    assert apply_rope(None, x_TD.double(), torch.tensor([1, 2, 3])).dtype == torch.float64


def test_bad_input_is_refused() -> None:
    with pytest.raises(ValueError, match=r"float64 vector, not torch\.float32"):
        Rope(inverse_frequencies_R=torch.ones(4))
    with pytest.raises(ValueError, match="head dimension 6 is below rotary dimension 8"):
        make_rope(8).rotate(torch.ones(1, 6), torch.tensor([0]))
