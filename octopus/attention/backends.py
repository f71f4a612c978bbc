"""The attention backends by name, and the one function that calls them.

Letters: T rows of the pack, H query heads, G key/value heads, D head dimension.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from typing import Protocol

import torch
from torch import Tensor

from octopus.attention.libraries.engines import HALF_PRECISION
from octopus.attention.libraries.kernel import NAMES, TRITON, unavailable
from octopus.attention.libraries.ops import attend_by_library
from octopus.attention.plan import Plan
from octopus.attention.reference import attend_reference
from octopus.attention.rope import Rope
from octopus.attention.sliced import attend_sliced
from octopus.attention.windowed import windowed
from octopus.core.errors import BackendUnavailable


class Backend(Protocol):
    """An attention function."""

    def __call__(
        self, q_HTD: Tensor, k_GTD: Tensor, v_GTD: Tensor, /, *, plan: Plan, rope: Rope | None, scale: float
    ) -> tuple[Tensor, Tensor]:
        """Has the contract of `attend_reference`."""


_BACKENDS: Mapping[str, Backend] = {
    "reference": attend_reference,
    "sliced": attend_sliced,
    **{name: partial(attend_by_library, name=name) for name in NAMES},
}


PAGED_BACKENDS = ("torch", TRITON)
"""What computes attention over stored keys: plain PyTorch, or our own kernels."""


def available_backends() -> tuple[str, ...]:
    """Names that `attend` accepts on this machine."""
    return tuple(name for name in _BACKENDS if name not in NAMES or unavailable(name) is None)


def default_backend(device: torch.device, dtype: torch.dtype, head_dim: int) -> str:
    """The backend to use when the user names none.

    Every name below comes with PyTorch; the packages of `cudnn` and `sliced-fa4`, the fastest on Hopper, are extras
    and are used when they are named.

    ======  =================  ========  ============
    device  dtype              head_dim  backend
    ======  =================  ========  ============
    cuda    bfloat16, float16  8 to 256  sliced-cudnn (compute capability 9 and newer), sliced-fa2 (8)
    other                                sliced
    ======  =================  ========  ============
    """
    if device.type == "cuda" and dtype in HALF_PRECISION and head_dim % 8 == 0 and head_dim <= 256:
        return next((name for name in ("sliced-cudnn", "sliced-fa2") if unavailable(name) is None), "sliced")
    return "sliced"


def refuse_paged_backend(name: str, device: torch.device) -> None:
    """Raises BackendUnavailable if attention over stored keys cannot be computed by what is called so."""
    if name not in PAGED_BACKENDS:
        reason: str | None = "there is none of that name"
    elif name == TRITON:
        reason = unavailable(TRITON) or ("it runs on a GPU" if device.type != "cuda" else None)
    else:
        reason = None
    if reason:
        raise BackendUnavailable(
            f"backend {name!r} for stored keys is not available on {device} ({reason}); there are "
            f"{', '.join(PAGED_BACKENDS)}, of which torch runs everywhere"
        )


def attend(
    q_HTD: Tensor,
    k_GTD: Tensor,
    v_GTD: Tensor,
    *,
    plan: Plan,
    rope: Rope | None,
    scale: float,
    backend: str,
    window: int | None = None,
) -> tuple[Tensor, Tensor]:
    """Attention over a plan by the named backend and no other; the contract is that of `attend_reference`.

    Args:
        q_HTD, k_GTD, v_GTD, plan, rope, scale: as for `attend_reference`.
        backend: its name.
        window: number of positions that a row sees, its own the last of them; None for its whole view.

    Raises:
        BackendUnavailable: no such backend here; the message lists those there are.
        ValueError: shapes or dtypes that do not fit each other or the plan; a window of less than one position.
    """
    reason = "there is none of that name" if backend not in _BACKENDS else None
    if backend in NAMES:
        reason = unavailable(backend)
    if reason:
        raise BackendUnavailable(
            f"attention backend {backend!r} is not available here ({reason}); "
            f"available: {', '.join(available_backends())}"
        )
    _check_inputs(q_HTD, k_GTD, v_GTD, plan)
    return _BACKENDS[backend](q_HTD, k_GTD, v_GTD, plan=windowed(plan, window), rope=rope, scale=scale)


def _check_inputs(q_HTD: Tensor, k_GTD: Tensor, v_GTD: Tensor, plan: Plan) -> None:
    heads, rows, head_dim = q_HTD.shape
    kv_heads = k_GTD.shape[0]
    if rows != plan.length:
        raise ValueError(f"q has {rows} rows, the plan has {plan.length}")
    if k_GTD.shape != v_GTD.shape or k_GTD.shape[1:] != (rows, head_dim):
        raise ValueError(
            f"k {tuple(k_GTD.shape)} and v {tuple(v_GTD.shape)} do not fit q {tuple(q_HTD.shape)}: "
            "rows and head dimension must be the same"
        )
    if kv_heads == 0 or heads % kv_heads:
        raise ValueError(f"{heads} query heads cannot share {kv_heads} key/value heads evenly")
    if not q_HTD.dtype == k_GTD.dtype == v_GTD.dtype:
        raise ValueError(f"q, k and v must have one dtype, not {q_HTD.dtype}, {k_GTD.dtype}, {v_GTD.dtype}")
