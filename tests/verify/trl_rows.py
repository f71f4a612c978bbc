"""TRL's tree rows, through the installed package: the one file of it that makes them and attends over them.

Its package imports a whole trainer; the file needs torch and transformers only, so it is loaded by itself.
"""

from __future__ import annotations

import importlib.util
from importlib.metadata import distribution
from types import ModuleType, SimpleNamespace

import torch
from torch.nn.functional import scaled_dot_product_attention

VERSION = "1.16.0"


def packing_module() -> ModuleType:
    """`trl.experimental.async_grpo.packing` of the pinned version, with its CUDA kernel replaced by one for the CPU."""
    installed = distribution("trl")
    assert installed.version == VERSION, (
        f"these rows are those of TRL {VERSION}, installed is {installed.version}"
    )
    path = installed.locate_file("trl/experimental/async_grpo/packing.py")
    spec = importlib.util.spec_from_file_location("trl_tree_packing", str(path))
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    module._flash_attn = lambda: SimpleNamespace(flash_attn_varlen_func=varlen_attention)
    return module


def varlen_attention(q, k, v, cu_q, cu_k, max_q, max_k, *, softmax_scale, causal, window_size):
    """What FlashAttention's varlen function is documented to do: causal, aligned at the bottom right."""
    assert causal and window_size == (-1, -1)
    outputs = []
    for segment in range(len(cu_q) - 1):
        rows, keys = slice(cu_q[segment], cu_q[segment + 1]), slice(cu_k[segment], cu_k[segment + 1])
        queries, past = rows.stop - rows.start, keys.stop - keys.start
        visible = torch.ones(queries, past, dtype=torch.bool).tril(diagonal=past - queries)
        q_HND, k_GKD, v_GKD = (x.transpose(0, 1) for x in (q[rows], k[keys], v[keys]))
        out = scaled_dot_product_attention(
            q_HND[None], k_GKD[None], v_GKD[None], attn_mask=visible, scale=softmax_scale, enable_gqa=True
        )
        outputs.append(out[0].transpose(0, 1))
    return torch.cat(outputs)
