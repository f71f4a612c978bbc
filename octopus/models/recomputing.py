"""Activation checkpointing (Chen et al., arXiv 1604.06174): a layer's inner values are made again in its backward pass.

What attention gives is kept, because it is small beside the time that it takes; all else is made again.
"""

from __future__ import annotations

from functools import partial
from typing import Any

import torch
from torch import Tensor
from torch.utils.checkpoint import checkpoint, create_selective_checkpoint_contexts
from transformers import PreTrainedModel
from transformers.modeling_layers import GradientCheckpointingLayer

from octopus.attention.libraries.ops import ATTEND


def recompute_layers(model: PreTrainedModel) -> None:
    """From now on each layer keeps its input and what its attention gave, and makes the rest again.

    In place, before the model is wrapped, instead of the library's own switch; doing so twice does no harm. Values are
    the same. Attention by a backend of plain PyTorch is made again too. Without gradients nothing changes.
    """
    for module in model.modules():
        if isinstance(module, GradientCheckpointingLayer) and not isinstance(module.forward, partial):
            module.forward = partial(_recomputed, module.forward)


def _recomputed(forward: Any, *inputs: Any, **named: Any) -> Any:
    if not torch.is_grad_enabled():
        return forward(*inputs, **named)
    # Nothing in a layer is drawn at random, so there is no generator to wind back.
    contexts = partial(create_selective_checkpoint_contexts, [ATTEND])
    made: Tensor = checkpoint(
        forward, *inputs, use_reentrant=False, preserve_rng_state=False, context_fn=contexts, **named
    )
    return made
