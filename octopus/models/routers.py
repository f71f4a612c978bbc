"""Which experts a row goes to. Each row is routed by itself, so mixtures run over packs as the library has them.

The library routes in float32 whatever the weights; here in `promote(dtype, float32)`.

Letters: X any leading dimensions, C hidden channels, T rows, E experts, K chosen experts, G groups of experts.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor
from torch.nn.functional import linear

from octopus.models.layers.layer import Layers
from octopus.models.layers.plain import promoted


def softmax_router(_: Layers, module: Any, x_XC: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Qwen3-Next: the largest of a softmax over all experts. Returns logits [T, E], weights and experts [T, K]."""
    logits_TE = linear(x_XC.flatten(0, -2), module.weight)
    weights_TK, experts_TK = promoted(logits_TE).softmax(dim=-1).topk(module.top_k, dim=-1)
    if module.norm_topk_prob:
        weights_TK = weights_TK / weights_TK.sum(dim=-1, keepdim=True)
    return logits_TE, weights_TK.to(logits_TE.dtype), experts_TK


def granite_mixture(_: Layers, module: Any, x_XC: Tensor) -> Tensor:
    """Granite: a softmax over the chosen experts alone. What its router returns is not the same in all versions."""
    rows_TC = x_XC.flatten(0, -2)
    logits_TE = promoted(linear(rows_TC, module.router.weight))
    chosen_TK, experts_TK = logits_TE.topk(module.router.top_k, dim=-1)
    out_TC: Tensor = module.experts(rows_TC, experts_TK, chosen_TK.softmax(dim=-1).to(x_XC.dtype))
    return out_TC.view_as(x_XC)


def grouped_router(_: Layers, module: Any, x_XC: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Nemotron-H: sigmoids, corrected for the choice only, of the groups whose two best are largest together.

    Returns as `softmax_router` does.
    """
    logits_TE = linear(promoted(x_XC.flatten(0, -2)), promoted(module.weight))
    scores_TE = logits_TE.sigmoid()
    choice_TGX = (scores_TE + module.e_score_correction_bias).unflatten(-1, (module.num_group, -1))
    groups_TG = choice_TGX.topk(2, dim=-1).values.sum(dim=-1)
    kept_TG = groups_TG.topk(module.topk_group, dim=-1).indices
    closed_TG = torch.ones_like(groups_TG, dtype=torch.bool).scatter(1, kept_TG, False)
    open_TE = choice_TGX.masked_fill(closed_TG[..., None], -torch.inf).flatten(1)
    experts_TK = open_TE.topk(module.top_k, dim=-1).indices
    weights_TK = scores_TE.gather(1, experts_TK)
    if module.norm_topk_prob:
        weights_TK = weights_TK / (weights_TK.sum(dim=-1, keepdim=True) + 1e-20)
    return logits_TE, weights_TK * module.routed_scaling_factor, experts_TK
