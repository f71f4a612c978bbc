"""The recurrence of Mamba-2 (Dao and Gu, arXiv 2405.21060), by chunks and by single steps.

With step size `dt`, decay `exp(g)` and the paper's B, C and x named key, query and value, every token does

    S <- exp(g) S + k (dt v)^T;    out = S^T q + skip v

Consecutive heads form a group and share its keys and queries. Everything is computed in `promote(dtype, float32)` and
returned so. A token whose q, k, v, g, dt and skip are all 0 leaves the state as it is, which is how a batch of unequal
lengths is padded.

Letters: B runs, T tokens, N chunks, L tokens of a chunk, H heads, G groups, R heads of a group, K state size, V head
dimension.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import torch
from torch import Tensor

from octopus.models.gated_delta import CHUNK_SIZE, chunked
from octopus.models.layers.plain import promoted


class MambaInputs(NamedTuple):
    """What each token brings. Leading dimensions X are shared; `g` is the logarithm of the decay."""

    q_XGK: Tensor
    k_XGK: Tensor
    v_XHV: Tensor
    g_XH: Tensor
    dt_XH: Tensor
    skip_XH: Tensor

    def each(self, change: Callable[[Tensor], Tensor]) -> MambaInputs:
        """See `RuleInputs.each`."""
        return MambaInputs(*map(change, self))

    def zero_state(self) -> Tensor:
        """See `RuleInputs.zero_state`."""
        heads, value_dim = self.v_XHV.shape[-2:]
        dtype = torch.promote_types(self.v_XHV.dtype, torch.float32)
        return self.v_XHV.new_zeros(heads, self.k_XGK.shape[-1], value_dim, dtype=dtype)

    def by_chunks(self, initial_BHKV: Tensor) -> tuple[Tensor, Tensor]:
        """See `RuleInputs.by_chunks`."""
        return mamba_chunks(self, initial_BHKV)

    def by_step(self, state_BHKV: Tensor) -> tuple[Tensor, Tensor]:
        """See `RuleInputs.by_step`."""
        return mamba_step(self, state_BHKV)


def mamba_chunks(
    inputs: MambaInputs, initial_BHKV: Tensor, *, chunk_size: int = CHUNK_SIZE
) -> tuple[Tensor, Tensor]:
    """Runs of T tokens from their initial states: parallel inside a chunk, sequential from chunk to chunk.

    Args:
        inputs: X is [B, T].
        initial_BHKV: states before the first token.
        chunk_size: tokens a chunk; only speed and rounding depend on it.

    Returns:
        The outputs [B, T, H, V] and the states after the last token [B, H, K, V].
    """
    inputs = inputs.each(promoted)
    tokens, groups = inputs.q_XGK.shape[1:3]
    chunk_size = min(chunk_size, tokens)
    q, k, v, g, dt, _ = inputs.each(lambda x: chunked(x, chunk_size))
    q_BNG1LK, k_BNG1LK = q[:, :, :, None], k[:, :, :, None]
    v_BNGRLV, g_BNGRL1 = (x.unflatten(2, (groups, -1)) for x in (dt * v, g))

    c64_BNGRL1 = g_BNGRL1.double().cumsum(dim=-2)
    later_LL = torch.ones(chunk_size, chunk_size, dtype=torch.bool, device=q.device).triu(1)
    # The upper half would overflow in exp; it is replaced before, not after.
    decay_BNGRLL = (c64_BNGRL1 - c64_BNGRL1.mT).to(q.dtype).masked_fill(later_LL, -torch.inf).exp()
    inside_BNGRLV = ((q_BNG1LK @ k_BNG1LK.mT) * decay_BNGRLL) @ v_BNGRLV
    since_start_BNGRL1 = c64_BNGRL1.to(q.dtype).exp()
    to_end_BNGRL1 = (c64_BNGRL1[..., -1:, :] - c64_BNGRL1).to(q.dtype).exp()
    written_BNGRKV = k_BNG1LK.mT @ (to_end_BNGRL1 * v_BNGRLV)

    state_BGRKV = initial_BHKV.to(q.dtype).unflatten(1, (groups, -1))
    outs = []
    for n in range(q.shape[1]):
        outs.append(inside_BNGRLV[:, n] + since_start_BNGRL1[:, n] * (q_BNG1LK[:, n] @ state_BGRKV))
        state_BGRKV = since_start_BNGRL1[:, n, ..., -1:, :] * state_BGRKV + written_BNGRKV[:, n]
    out_BTHV = torch.stack(outs, dim=1).flatten(2, 3).transpose(2, 3).flatten(1, 2)[:, :tokens]
    return out_BTHV + inputs.skip_XH[..., None] * inputs.v_XHV, state_BGRKV.flatten(1, 2)


def mamba_step(inputs: MambaInputs, state_BHKV: Tensor) -> tuple[Tensor, Tensor]:
    """One token of each run; X is [B].

    Returns:
        The outputs [B, H, V] and the new states; `state_BHKV` itself is left as it was.
    """
    q_BGK, k_BGK, v_BHV, g_BH, dt_BH, skip_BH = inputs.each(promoted)
    groups = q_BGK.shape[1]
    written_BHV, decay_BH11 = dt_BH[..., None] * v_BHV, g_BH.exp()[..., None, None]
    written_BGR1V = written_BHV.unflatten(1, (groups, -1))[..., None, :]
    kept_BGRKV = (decay_BH11 * state_BHKV.to(v_BHV.dtype)).unflatten(1, (groups, -1))
    state_BGRKV = kept_BGRKV + k_BGK[:, :, None, :, None] * written_BGR1V
    read_BHV = (q_BGK[:, :, None, None] @ state_BGRKV).squeeze(-2).flatten(1, 2)
    return read_BHV + skip_BH[..., None] * v_BHV, state_BGRKV.flatten(1, 2)
