"""Dense attention calls of the libraries, with the log-sum-exp out and a merged one in.

Each engine computes blocks: all rows of a block see all its keys, or in a causal block (a square) the keys up to their
own. Its backward takes the output and the LSE of the rows over *all* keys they see, not of this block: the block's
probabilities are then the final ones, and the blocks' gradients add up.

Letters: B blocks, H query heads, G key/value heads, N query rows and K keys of a block, D head dimension.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from importlib.util import find_spec
from typing import Protocol

import torch
from torch import Tensor

HALF_PRECISION = (torch.bfloat16, torch.float16)


class Engine(Protocol):
    """A library's dense attention. Inputs may be strided in all dimensions but the last; nothing is changed."""

    def unavailable(self) -> str | None:
        """Why this machine cannot run it, None if it can."""
        ...

    def forward(
        self, q_BHND: Tensor, k_BGKD: Tensor, v_BGKD: Tensor, *, causal: bool, scale: float
    ) -> tuple[Tensor, Tensor]:
        """`out_BHND` in q's dtype and `lse_BHN`, natural log, float32, contiguous in N."""
        ...

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
        """The block's shares `dq_BHND`, `dk_BGKD`, `dv_BGKD`."""
        ...


@dataclass(frozen=True)
class CudnnEngine:
    """cuDNN's attention, as PyTorch carries it. A block of one row and one key, which it refuses, is done in torch."""

    def unavailable(self) -> str | None:
        """See `Engine.unavailable`."""
        return needs(9 if torch.backends.cudnn.is_available() else None, "PyTorch with cuDNN")

    def forward(
        self, q_BHND: Tensor, k_BGKD: Tensor, v_BGKD: Tensor, *, causal: bool, scale: float
    ) -> tuple[Tensor, Tensor]:
        """See `Engine.forward`."""
        if q_BHND.shape[2] == k_BGKD.shape[2] == 1:
            return _one_key_forward(q_BHND, *_spread(q_BHND, k_BGKD, v_BGKD), scale)
        out_BHND, lse, *_ = torch.ops.aten._scaled_dot_product_cudnn_attention(
            q_BHND, k_BGKD, v_BGKD, None, True, 0.0, causal, False, scale=scale
        )
        return out_BHND, lse.reshape(q_BHND.shape[:3])

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
        """See `Engine.backward`."""
        if q_BHND.shape[2] == k_BGKD.shape[2] == 1:
            return _one_key_backward(d_out_BHND, q_BHND, k_BGKD, v_BGKD, out_BHND, lse_BHN, scale)
        no_dropout = torch.zeros((), dtype=torch.int64, device=q_BHND.device)
        dq, dk, dv = torch.ops.aten._scaled_dot_product_cudnn_attention_backward(
            d_out_BHND, q_BHND, k_BGKD, v_BGKD, out_BHND, lse_BHN.contiguous()[..., None], no_dropout, no_dropout,
            None, None, None, q_BHND.shape[2], k_BGKD.shape[2], 0.0, causal, scale=scale,
        )  # fmt: skip
        return dq, dk, dv


@dataclass(frozen=True)
class Flash2Engine:
    """FlashAttention-2, as PyTorch carries it."""

    def unavailable(self) -> str | None:
        """See `Engine.unavailable`."""
        return needs(8 if torch.backends.cuda.is_flash_attention_available() else None, "PyTorch with FlashAttention")

    def forward(
        self, q_BHND: Tensor, k_BGKD: Tensor, v_BGKD: Tensor, *, causal: bool, scale: float
    ) -> tuple[Tensor, Tensor]:
        """See `Engine.forward`."""
        out_BHND, lse_BHN, *_ = torch.ops.aten._scaled_dot_product_flash_attention(
            q_BHND, *_spread(q_BHND, k_BGKD, v_BGKD), 0.0, causal, False, scale=scale
        )
        return out_BHND, lse_BHN

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
        """See `Engine.backward`."""
        no_dropout = torch.zeros(2, dtype=torch.uint64, device=q_BHND.device)
        k_BHKD, v_BHKD = _spread(q_BHND, k_BGKD, v_BGKD)
        dq, dk_BHKD, dv_BHKD = torch.ops.aten._scaled_dot_product_flash_attention_backward(
            d_out_BHND, q_BHND, k_BHKD, v_BHKD, out_BHND, lse_BHN.contiguous(), None, None,
            q_BHND.shape[2], k_BGKD.shape[2], 0.0, causal, no_dropout, no_dropout, scale=scale,
        )  # fmt: skip
        return dq, _gathered(dk_BHKD, k_BGKD), _gathered(dv_BHKD, v_BGKD)


@dataclass(frozen=True)
class Flash4Engine:
    """FlashAttention-4 (the package flash-attn-4, written in CuTe)."""

    def unavailable(self) -> str | None:
        """See `Engine.unavailable`."""
        installed = find_spec("flash_attn") is not None and find_spec("flash_attn.cute") is not None
        return needs(9 if installed else None, "the package flash-attn-4")

    def forward(
        self, q_BHND: Tensor, k_BGKD: Tensor, v_BGKD: Tensor, *, causal: bool, scale: float
    ) -> tuple[Tensor, Tensor]:
        """See `Engine.forward`."""
        from flash_attn.cute.interface import _flash_attn_fwd

        q, k, v = (x.transpose(1, 2) for x in (q_BHND, k_BGKD, v_BGKD))
        out, lse_BHN, *_ = _flash_attn_fwd(q, k, v, softmax_scale=scale, causal=causal, return_lse=True)
        return out.transpose(1, 2), lse_BHN

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
        """See `Engine.backward`."""
        from flash_attn.cute.interface import _flash_attn_bwd

        q, k, v, out, d_out = (x.transpose(1, 2) for x in (q_BHND, k_BGKD, v_BGKD, out_BHND, d_out_BHND))
        dq, dk, dv = _flash_attn_bwd(
            q, k, v, out, d_out, lse_BHN.contiguous(), softmax_scale=scale, causal=causal,
            deterministic=torch.are_deterministic_algorithms_enabled(),
        )[:3]  # fmt: skip
        return dq.transpose(1, 2), dk.transpose(1, 2), dv.transpose(1, 2)


ENGINES: Mapping[str, Engine] = {
    "sliced-cudnn": CudnnEngine(),
    "sliced-fa2": Flash2Engine(),
    "sliced-fa4": Flash4Engine(),
}


def needs(capability: int | None, what: str) -> str | None:
    """What is missing for kernels of `what` (None: it is not installed) that need a GPU of a major version or newer."""
    if capability is None:
        return f"{what} is not installed"
    if not torch.cuda.is_available():
        return "it needs an NVIDIA GPU, and there is none"
    if torch.cuda.get_device_capability()[0] < capability:
        return f"it needs a GPU of compute capability {capability}.0 or newer"
    return None


def _spread(q_BHND: Tensor, k_BGKD: Tensor, v_BGKD: Tensor) -> tuple[Tensor, Tensor]:
    """Keys and values with one head for each query head: this kernel does not share them."""
    group = q_BHND.shape[1] // k_BGKD.shape[1]
    return k_BGKD.repeat_interleave(group, 1), v_BGKD.repeat_interleave(group, 1)


def _gathered(x_BHKD: Tensor, like_BGKD: Tensor) -> Tensor:
    """Sums what the query heads of a group give to the head they share, in float32."""
    batch, groups, keys, dim = like_BGKD.shape
    return x_BHKD.float().view(batch, groups, -1, keys, dim).sum(2)


def _one_key_forward(q_BH1D: Tensor, k_BH1D: Tensor, v_BH1D: Tensor, scale: float) -> tuple[Tensor, Tensor]:
    return v_BH1D, (q_BH1D.float() * k_BH1D.float()).sum(-1) * scale


def _one_key_backward(
    d_out_BH1D: Tensor,
    q_BH1D: Tensor,
    k_BG1D: Tensor,
    v_BG1D: Tensor,
    out_BH1D: Tensor,
    lse_BH1: Tensor,
    scale: float,
) -> tuple[Tensor, Tensor, Tensor]:
    k_BH1D, v_BH1D = _spread(q_BH1D, k_BG1D, v_BG1D)
    _, score_BH1 = _one_key_forward(q_BH1D, k_BH1D, v_BH1D, scale)
    p_BH11 = (score_BH1 - lse_BH1).exp()[..., None]
    d_out_BH1D = d_out_BH1D.float()
    ds_BH11 = p_BH11 * scale * (d_out_BH1D * (v_BH1D.float() - out_BH1D.float())).sum(-1, keepdim=True)
    return ds_BH11 * k_BH1D, _gathered(ds_BH11 * q_BH1D, k_BG1D), _gathered(p_BH11 * d_out_BH1D, v_BG1D)
