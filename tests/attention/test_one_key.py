"""A block of one row and one key, which one of the libraries refuses."""

import torch
from dense_engine import DenseEngine

from octopus.attention.libraries.engines import CudnnEngine


def test_one_row_and_one_key_without_the_library() -> None:
    """Catches: a wrong share of a row that sees more than this key, or heads of a group not summed."""
    draw = torch.Generator().manual_seed(0)
    q, d_out, out = (torch.randn(3, 4, 1, 8, generator=draw) for _ in range(3))
    k, v = (torch.randn(3, 2, 1, 8, generator=draw) for _ in range(2))
    lse = torch.randn(3, 4, 1, generator=draw) + 4  # Of more keys than this one.
    ours, plain = CudnnEngine(), DenseEngine()
    options = {"causal": True, "scale": 0.3}
    pairs = [
        *zip(ours.forward(q, k, v, **options), plain.forward(q, k, v, **options), strict=True),
        *zip(
            ours.backward(d_out, q, k, v, out, lse, **options),
            plain.backward(d_out, q, k, v, out, lse, **options),
            strict=True,
        ),
    ]
    for a, b in pairs:
        torch.testing.assert_close(a, b)
