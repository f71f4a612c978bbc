"""One attention layer's pass by a library: rotate once, call, fold the copies' gradients back.

Letters: T rows of the pack, L keys (the pack's rows, then copies), H query heads, G key/value heads, D head dimension.
"""

from __future__ import annotations

from dataclasses import dataclass
from importlib.util import find_spec
from typing import Protocol

import numpy as np
import torch
from torch import Tensor

from octopus.attention.libraries.engines import ENGINES, HALF_PRECISION, needs
from octopus.attention.libraries.interval import IntervalKernel
from octopus.attention.libraries.interval import unavailable as interval_unavailable
from octopus.attention.libraries.key_table import KeyTable, key_table
from octopus.attention.libraries.rows import Angles, rotated, sum_rotated
from octopus.attention.libraries.sliced import SlicedKernel
from octopus.attention.plan import Plan
from octopus.attention.rope import Rope
from octopus.core.errors import BackendUnavailable

TRITON, CUDNN = "triton", "cudnn"
NAMES = (TRITON, CUDNN, *ENGINES)


class Kernel(Protocol):
    """Attention over a key table, queries and keys rotated."""

    def forward(self, q_HTD: Tensor, k_GLD: Tensor, v_GLD: Tensor, scale: float) -> tuple[Tensor, Tensor]:
        """`out_HTD` in q's dtype and `lse_HT`, natural log, float32; 0 and -inf for a row that sees nothing."""
        ...

    def backward(
        self,
        d_out_HTD: Tensor,
        q_HTD: Tensor,
        k_GLD: Tensor,
        v_GLD: Tensor,
        out_HTD: Tensor,
        lse_HT: Tensor,
        scale: float,
        angles: Angles,
    ) -> tuple[Tensor, Tensor, Tensor]:
        """`dq_HTD`, rotated back by the rows' angles; `dk_GLD` and `dv_GLD` of the keys as rotated."""
        ...


@dataclass(frozen=True, kw_only=True, eq=False)
class LibraryPass:
    """A plan lowered for one backend, device and rotary embedding: made once, used by every layer, both ways.

    Attributes:
        kernel: What computes.
        rows: Angles of the queries.
        keys: Angles of the keys.
        source_L: The row that each key is; None if the keys are the rows.
        folds: Batches of copies `(keys, rows)`: no row twice in a batch, so that each sum has one order.
        rope: What the angles were made from.
    """

    kernel: Kernel
    rows: Angles
    keys: Angles
    source_L: Tensor | None
    folds: tuple[tuple[Tensor, Tensor], ...]
    rope: Rope | None

    @classmethod
    def of(
        cls, name: str, plan: Plan, rope: Rope | None, device: torch.device, dtype: torch.dtype, head_dim: int
    ) -> LibraryPass:
        """Lowers a plan for the named backend."""
        table = key_table(plan, rotates=rope is not None, gathers=name in ENGINES)
        compute_dtype = torch.promote_types(dtype, torch.float32)
        copies = len(table.rows_L) > table.length
        return cls(
            kernel=_kernel(name, table, device, head_dim),
            rows=Angles.of(rope, plan.positions_T, device, compute_dtype),
            keys=Angles.of(rope, table.positions_L, device, compute_dtype),
            source_L=torch.from_numpy(table.rows_L).to(device) if copies else None,
            folds=_folds(table, device),
            rope=rope,
        )

    def forward(self, q_HTD: Tensor, k_GTD: Tensor, v_GTD: Tensor, scale: float) -> tuple[Tensor, Tensor]:
        """`out_HTD` in q's dtype and `lse_HT`, from unrotated queries and keys."""
        return self.kernel.forward(rotated(q_HTD, self.rows), *self._keys(k_GTD, v_GTD), scale)

    def backward(
        self,
        d_out_HTD: Tensor,
        q_HTD: Tensor,
        k_GTD: Tensor,
        v_GTD: Tensor,
        out_HTD: Tensor,
        lse_HT: Tensor,
        scale: float,
    ) -> tuple[Tensor, Tensor, Tensor]:
        """Gradients `dq_HTD`, `dk_GTD`, `dv_GTD`, in the inputs' dtype."""
        q_HTD = rotated(q_HTD, self.rows)
        k_GLD, v_GLD = self._keys(k_GTD, v_GTD)
        dq_HTD, dk_GLD, dv_GLD = self.kernel.backward(
            d_out_HTD, q_HTD, k_GLD, v_GLD, out_HTD, lse_HT, scale, self.rows
        )
        if self.rope is not None:
            dk_GLD = sum_rotated([dk_GLD], self.keys, out_HND=torch.empty_like(dk_GLD, dtype=lse_HT.dtype), back=True)
        dk_GTD, dv_GTD = (self._folded(x, k_GTD.shape[1], lse_HT.dtype) for x in (dk_GLD, dv_GLD))
        return dq_HTD, dk_GTD.to(k_GTD.dtype).contiguous(), dv_GTD.to(v_GTD.dtype).contiguous()

    def _keys(self, k_GTD: Tensor, v_GTD: Tensor) -> tuple[Tensor, Tensor]:
        k_GLD = rotated(k_GTD, self.keys, rows_N=self.source_L)
        return k_GLD, v_GTD if self.source_L is None else v_GTD.index_select(1, self.source_L)

    def _folded(self, x_GLD: Tensor, length: int, dtype: torch.dtype) -> Tensor:
        if not self.folds:
            return x_GLD
        x_GTD = x_GLD[:, :length].to(dtype, copy=True)
        for keys_N, rows_N in self.folds:
            x_GTD.index_add_(1, rows_N, x_GLD.index_select(1, keys_N).to(dtype))
        return x_GTD


def library_pass(name: str, plan: Plan, rope: Rope | None, like: Tensor) -> LibraryPass:
    """The plan lowered for a backend, for tensors like `like`; made once and kept with the plan.

    Raises:
        BackendUnavailable: the library, the GPU or the dtype is missing; the message says which.
    """
    # The pass keeps the frequencies alive, so that their id stays theirs.
    pace = None if rope is None else id(rope.inverse_frequencies_R)
    key = (LibraryPass, name, pace, like.device, like.dtype, like.shape[-1])
    if key not in plan.memo:
        if reason := unavailable(name) or _refusal(name, like):
            raise BackendUnavailable(f"attention backend {name!r} is not available here: {reason}")
        plan.memo[key] = LibraryPass.of(name, plan, rope, like.device, like.dtype, like.shape[-1])
    made: LibraryPass = plan.memo[key]
    return made


def unavailable(name: str) -> str | None:
    """Why this machine cannot run a backend of `NAMES`, None if it can."""
    if name == TRITON:
        return needs(9 if find_spec("triton") else None, "the package triton")
    return interval_unavailable() if name == CUDNN else ENGINES[name].unavailable()


def _kernel(name: str, table: KeyTable, device: torch.device, head_dim: int) -> Kernel:
    if name == TRITON:
        from octopus.attention.dag.packed import DagKernel  # Triton is an extra.

        return DagKernel.of(table, device, head_dim)
    return IntervalKernel.of(table, device) if name == CUDNN else SlicedKernel.of(ENGINES[name], table)


def _refusal(name: str, like: Tensor) -> str | None:
    if like.device.type != "cuda" or like.dtype not in HALF_PRECISION:
        return f"it takes bfloat16 or float16 on a GPU, not {like.dtype} on {like.device}"
    dim = like.shape[-1]
    odd = name == TRITON and (dim & (dim - 1) or dim < 16)
    if dim % 8 or dim > 256 or (name == CUDNN and 128 < dim < 256) or odd:
        return f"it has no kernel for head dimension {dim}"
    return None


def _folds(table: KeyTable, device: torch.device) -> tuple[tuple[Tensor, Tensor], ...]:
    keys = np.arange(table.length, len(table.rows_L))
    rows = table.rows_L[table.length :]
    batches = []
    while len(keys):
        _, first = np.unique(rows, return_index=True)
        batches.append((torch.from_numpy(keys[first]).to(device), torch.from_numpy(rows[first]).to(device)))
        keys, rows = np.delete(keys, first), np.delete(rows, first)
    return tuple(batches)
