"""The gated delta rule (Yang, Kautz, Hatamizadeh, arXiv 2412.06464), by chunks and by single steps.

With decay `exp(g)`, write strength `beta`, unit keys and unit queries scaled by `Dk ** -0.5`, every token does

    S <- exp(g) S;    u = beta (v - S^T k);    S <- S + k u^T;    out = S^T q

Inside a chunk with summed decays `c_i = g_1 + ... + g_i` the writes `u` solve a unit lower-triangular system:

    u_i + beta_i sum_{j < i} exp(c_i - c_j) (k_i . k_j) u_j = beta_i v_i - beta_i exp(c_i) S_0^T k_i

Everything is computed in `promote(dtype, float32)` and returned so. A token whose q, k, v, g and beta are all 0 leaves
the state as it is, which is how a batch of unequal lengths is padded.

Letters: B runs, T tokens, N chunks, L tokens of a chunk, H value heads, K key dimension, V value dimension.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import torch
from torch import Tensor
from torch.nn.functional import pad

NORM_EPSILON = 1e-6
CHUNK_SIZE = 64


class DeltaInputs(NamedTuple):
    """What each token brings to the rule. Leading dimensions X are shared; `g` is the logarithm of the decay."""

    q_XHK: Tensor
    k_XHK: Tensor
    v_XHV: Tensor
    g_XH: Tensor
    beta_XH: Tensor

    def each(self, change: Callable[[Tensor], Tensor]) -> DeltaInputs:
        """See `RuleInputs.each`."""
        return DeltaInputs(*map(change, self))

    def zero_state(self) -> Tensor:
        """See `RuleInputs.zero_state`."""
        heads, value_dim = self.v_XHV.shape[-2:]
        dtype = torch.promote_types(self.v_XHV.dtype, torch.float32)
        return self.v_XHV.new_zeros(heads, self.k_XHK.shape[-1], value_dim, dtype=dtype)

    def by_chunks(self, initial_BHKV: Tensor) -> tuple[Tensor, Tensor]:
        """See `RuleInputs.by_chunks`."""
        return chunk_rule(*self, initial_BHKV)

    def by_step(self, state_BHKV: Tensor) -> tuple[Tensor, Tensor]:
        """See `RuleInputs.by_step`."""
        return step_rule(*self, state_BHKV)


def chunk_rule(
    q_BTHK: Tensor,
    k_BTHK: Tensor,
    v_BTHV: Tensor,
    g_BTH: Tensor,
    beta_BTH: Tensor,
    initial_BHKV: Tensor,
    *,
    chunk_size: int = CHUNK_SIZE,
) -> tuple[Tensor, Tensor]:
    """Runs of T tokens from their initial states: parallel inside a chunk, sequential from chunk to chunk.

    Args:
        q_BTHK: queries, normalised here.
        k_BTHK: keys, normalised here.
        v_BTHV: values.
        g_BTH: logarithms of the decays, at most 0.
        beta_BTH: write strengths.
        initial_BHKV: states before the first token.
        chunk_size: tokens a chunk; only speed and rounding depend on it.

    Returns:
        The outputs `out_BTHV` and the states after the last token `final_BHKV`.
    """
    tokens = q_BTHK.shape[1]
    chunk_size = min(chunk_size, tokens)
    q, k, v, g, beta = (chunked(x, chunk_size) for x in (*_prepared(q_BTHK, k_BTHK, v_BTHV), g_BTH, beta_BTH))
    beta_BNHL1 = beta.to(q.dtype)

    # Sums of decays reach -1,000, where float32 has four digits left for their differences.
    c64_BNHL1 = g.double().cumsum(dim=-2)
    c_BNHL1 = c64_BNHL1.to(q.dtype)
    later_LL = torch.ones(chunk_size, chunk_size, dtype=torch.bool, device=q.device).triu(1)
    # The upper half would overflow in exp; it is replaced before, not after.
    decay_BNHLL = (c64_BNHL1 - c64_BNHL1.mT).to(q.dtype).masked_fill(later_LL, -torch.inf).exp()
    system_BNHLL = beta_BNHL1 * (k @ k.mT) * decay_BNHLL
    right_BNHLX = torch.cat((beta_BNHL1 * v, beta_BNHL1 * c_BNHL1.exp() * k), dim=-1)
    solved_BNHLX = torch.linalg.solve_triangular(system_BNHLL, right_BNHLX, upper=False, unitriangular=True)
    from_values_BNHLV, from_state_BNHLK = solved_BNHLX.split((v.shape[-1], k.shape[-1]), dim=-1)
    inside_BNHLL = (q @ k.mT) * decay_BNHLL
    read_BNHLK = c_BNHL1.exp() * q
    total_BNH11 = c_BNHL1[..., -1:, :]
    write_BNHLK = (c64_BNHL1[..., -1:, :] - c64_BNHL1).to(q.dtype).exp() * k

    state_BHKV = initial_BHKV.to(q.dtype)
    outs = []
    for n in range(q.shape[1]):
        u_BHLV = from_values_BNHLV[:, n] - from_state_BNHLK[:, n] @ state_BHKV
        outs.append(read_BNHLK[:, n] @ state_BHKV + inside_BNHLL[:, n] @ u_BHLV)
        state_BHKV = total_BNH11[:, n].exp() * state_BHKV + write_BNHLK[:, n].mT @ u_BHLV
    out_BTHV = torch.stack(outs, dim=1).transpose(2, 3).flatten(1, 2)
    return out_BTHV[:, :tokens], state_BHKV


def step_rule(
    q_BHK: Tensor, k_BHK: Tensor, v_BHV: Tensor, g_BH: Tensor, beta_BH: Tensor, state_BHKV: Tensor
) -> tuple[Tensor, Tensor]:
    """One token of each run.

    Returns:
        The outputs `out_BHV` and the new states; `state_BHKV` itself is left as it was.
    """
    q_BHK, k_BHK, v_BHV = _prepared(q_BHK, k_BHK, v_BHV)
    decay_BH = g_BH.to(q_BHK.dtype).exp()
    state_BHKV = decay_BH[..., None, None] * state_BHKV.to(q_BHK.dtype)
    u_BHV = beta_BH.to(q_BHK.dtype)[..., None] * (v_BHV - _read(state_BHKV, k_BHK))
    state_BHKV = state_BHKV + k_BHK[..., :, None] * u_BHV[..., None, :]
    return _read(state_BHKV, q_BHK), state_BHKV


def _read(state_BHKV: Tensor, x_BHK: Tensor) -> Tensor:
    return (x_BHK[..., None, :] @ state_BHKV).squeeze(-2)


def _prepared(q_XK: Tensor, k_XK: Tensor, v_XV: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Queries and keys with unit norm, queries scaled, all in the compute dtype."""
    dtype = torch.promote_types(q_XK.dtype, torch.float32)
    q_XK, k_XK = (_unit(x.to(dtype)) for x in (q_XK, k_XK))
    return q_XK * q_XK.shape[-1] ** -0.5, k_XK, v_XV.to(dtype)


def _unit(x_XK: Tensor) -> Tensor:
    return x_XK * torch.rsqrt(x_XK.square().sum(dim=-1, keepdim=True) + NORM_EPSILON)


def chunked(x: Tensor, chunk_size: int) -> Tensor:
    """[B, T, H, X] or [B, T, H] to [B, N, H, L, X or 1], padded with tokens that do nothing."""
    x_BTHX = x if x.ndim == 4 else x[..., None]
    x_BTHX = pad(x_BTHX, (0, 0, 0, 0, 0, -x_BTHX.shape[1] % chunk_size))
    return x_BTHX.unflatten(1, (-1, chunk_size)).transpose(2, 3)
