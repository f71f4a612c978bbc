"""The functions of flash-linear-attention that we call, in plain PyTorch and any dtype, one sequence at a time."""

from __future__ import annotations

import itertools
from typing import Any

import torch
from torch import Tensor
from torch.nn.functional import silu

from octopus.models.context import repeat_key_heads
from octopus.models.gated_delta import chunk_rule
from octopus.models.layers.fla import Kernels
from octopus.models.layers.plain import PlainLayers


def kernels() -> Kernels:
    plain = PlainLayers()
    return Kernels(
        rms_norm=lambda x, weight, bias, eps: plain.rms_norm(x, weight, eps),
        rms_norm_gated=lambda x, gate, weight, bias, eps: plain.gated_rms_norm(x, gate, weight, eps),
        swiglu=plain.swiglu,
        causal_conv1d=_causal_conv1d,
        chunk_gated_delta_rule=_chunk_gated_delta_rule,
    )


def _causal_conv1d(
    *, x: Tensor, weight: Tensor, initial_state: Tensor, activation: str, cu_seqlens: Tensor, cu_seqlens_cpu: Tensor
) -> tuple[Tensor, None]:
    """The last `W - 1` of an initial state's W columns come before the first; the first of them is never read."""
    assert activation == "silu" and x.shape[0] == 1 and torch.equal(cu_seqlens.cpu(), cu_seqlens_cpu)
    assert initial_state.shape == (len(cu_seqlens) - 1, *weight.shape)
    outs = []
    for number, (start, stop) in enumerate(itertools.pairwise(cu_seqlens)):
        before = initial_state[number].mT[1:]
        line = torch.cat((before, x[0, start:stop]))
        outs.append(sum(weight[:, at] * line[at : at + stop - start] for at in range(weight.shape[1])))
    return silu(torch.cat(outs))[None], None


def _chunk_gated_delta_rule(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    g: Tensor,
    beta: Tensor,
    *,
    initial_state: Tensor | None,
    output_final_state: bool,
    use_qk_l2norm_in_kernel: bool,
    cu_seqlens: Tensor,
    **_: Any,
) -> tuple[Tensor, Tensor]:
    assert output_final_state and use_qk_l2norm_in_kernel
    value_heads = v.shape[2]
    outs, finals = [], []
    for number, (start, stop) in enumerate(itertools.pairwise(cu_seqlens)):
        part = [x[:, start:stop] for x in (q, k, v, g, beta)]
        part[:2] = [repeat_key_heads(x[0], value_heads)[None] for x in part[:2]]
        zeros = v.new_zeros(1, value_heads, q.shape[-1], v.shape[-1])
        out, final = chunk_rule(*part, zeros if initial_state is None else initial_state[number][None])
        outs.append(out)
        finals.append(final)
    return torch.cat(outs, dim=1), torch.cat(finals)
