"""The rival of `train_step.py`: an episode branch by branch with the Hugging Face model, mounts re-read as text."""

from __future__ import annotations

import gc
import time
from typing import Any

import qwen_4b
import torch
from figures import Figures
from torch import Tensor
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.utils.checkpoint import checkpoint
from transformers import AttentionInterface, Qwen3_5TextConfig

BRANCH, JOIN = 45_056, 69_632
"""Tokens of a branch's row (root, own tokens, two mounts) and of the join's (root, twelve mounts, own tokens)."""
LOGIT_ROWS = 4_096


def rows_seconds(figures: Figures, settings: Qwen3_5TextConfig, *, scale: int) -> float:
    """Seconds of forward and backward of all 13 rows of `paper-143k`, from one of each length."""
    AttentionInterface.register("sdpa-cudnn", _attention)
    model = qwen_4b.new_model(settings, dtype=torch.bfloat16, device="cuda")
    model.set_attn_implementation("sdpa-cudnn")
    enable = getattr(model, "activation_checkpointing_enable", None) or model.gradient_checkpointing_enable
    enable({"use_reentrant": False})
    model.train()
    seconds = 0.0
    for tokens, loss_tokens, times in ((BRANCH, 8_192, 12), (JOIN, 12_288, 1)):
        length, terms = tokens // scale, loss_tokens // scale
        _row(model, length, terms)
        torch.cuda.synchronize()
        torch.cuda.reset_peak_memory_stats()
        started = time.perf_counter()
        _row(model, length, terms)
        torch.cuda.synchronize()
        one = time.perf_counter() - started
        figures.say("paper-143k", f"row of {length}", round(one, 3), "s", variant="rows")
        seconds += times * one
    figures.say("paper-143k", "step_s", round(seconds, 2), "s", variant="rows", note="12 short rows and a long one")
    peak = torch.cuda.max_memory_allocated() / 2**30
    figures.say("paper-143k", "peak_gib", round(peak, 1), "GiB", variant="rows", note="of the long row, no optimizer")
    del model
    gc.collect()
    torch.cuda.empty_cache()
    return seconds


def _attention(module: Any, q: Tensor, k: Tensor, v: Tensor, mask: None, **_: Any) -> tuple[Tensor, None]:
    with sdpa_kernel(SDPBackend.CUDNN_ATTENTION):
        out = torch.nn.functional.scaled_dot_product_attention(q, k, v, is_causal=True, enable_gqa=True)
    return out.transpose(1, 2).contiguous(), None


def _row(model: Any, tokens: int, loss_tokens: int) -> None:
    ids = torch.randint(0, model.config.vocab_size, (1, tokens), device="cuda")
    hidden = model.model(input_ids=ids, use_cache=False).last_hidden_state[0, -loss_tokens - 1 : -1]
    loss = torch.zeros((), device="cuda")
    for rows, labels in zip(hidden.split(LOGIT_ROWS), ids[0, -loss_tokens:].split(LOGIT_ROWS), strict=True):
        loss = loss + checkpoint(_loss, model, rows, labels, use_reentrant=False)
    loss.backward()
    model.zero_grad(set_to_none=True)


def _loss(model: Any, hidden: Tensor, labels: Tensor) -> Tensor:
    return torch.nn.functional.cross_entropy(model.lm_head(hidden).float(), labels, reduction="sum")
