"""A library engine in plain torch, so that all that surrounds the libraries' kernels is proven without a GPU.

Letters: B blocks, G key/value heads, R query heads that share one, H = G * R, N rows, K keys, D head dimension.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from unittest.mock import patch

import torch
from torch import Tensor

from octopus.attention import backends, dense
from octopus.attention.libraries import engines, kernel
from octopus.attention.libraries.ops import attend_by_library

NAME = "sliced-dense"


class DenseEngine:
    """Has the contract of `engines.Engine`, in any floating dtype."""

    def unavailable(self) -> str | None:
        return None

    def forward(
        self, q_BHND: Tensor, k_BGKD: Tensor, v_BGKD: Tensor, *, causal: bool, scale: float
    ) -> tuple[Tensor, Tensor]:
        q_GBRND, k_GBKD, v_GBKD = _grouped(q_BHND, k_BGKD.shape[1]) * scale, _first(k_BGKD), _first(v_BGKD)
        out_GBRND, lse_GBRN = dense.forward(q_GBRND, k_GBKD, v_GBKD, causal, None)
        return _flat(out_GBRND).to(q_BHND.dtype), _flat(lse_GBRN)

    def backward(
        self,
        d_out_BHND: Tensor,
        q_BHND: Tensor,
        k_BGKD: Tensor,
        v_BGKD: Tensor,
        out_BHND: Tensor,
        lse_BHN: Tensor,
        *,
        causal: bool,
        scale: float,
    ) -> tuple[Tensor, Tensor, Tensor]:
        d_out, q, lse, delta = (
            _grouped(x, k_BGKD.shape[1])
            for x in (d_out_BHND, q_BHND, lse_BHN, (_wide(d_out_BHND) * _wide(out_BHND)).sum(-1))
        )
        dq, dk, dv = dense.backward(d_out, q * scale, _first(k_BGKD), _first(v_BGKD), lse, delta, causal, None)
        return _flat(dq) * scale, dk.transpose(0, 1), dv.transpose(0, 1)


@contextmanager
def dense_engine() -> Iterator[str]:
    """The engine among the others, under the name given back, and no refusal of the CPU's dtypes."""
    with (
        patch.dict(engines.ENGINES, {NAME: DenseEngine()}),  # type: ignore[arg-type]
        patch.dict(backends._BACKENDS, {NAME: partial(attend_by_library, name=NAME)}),  # type: ignore[arg-type]
        patch.object(kernel, "_refusal", lambda *_: None),
    ):
        yield NAME


def _wide(x: Tensor) -> Tensor:
    return x.to(torch.promote_types(x.dtype, torch.float32))


def _grouped(x_BHNX: Tensor, kv_heads: int) -> Tensor:
    return _wide(x_BHNX).unflatten(1, (kv_heads, -1)).transpose(0, 1).contiguous()


def _first(x_BGKD: Tensor) -> Tensor:
    return _wide(x_BGKD).transpose(0, 1).contiguous()


def _flat(x_GBRNX: Tensor) -> Tensor:
    return x_GBRNX.transpose(0, 1).flatten(1, 2)
