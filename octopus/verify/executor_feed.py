"""What follows or replaces a mixer in a layer: gated units, plain ones, and mixtures of experts, one token at a time.

Letters: E experts, K chosen experts, G groups of experts.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from octopus.verify.executor_parts import ACTIVATIONS, GEMMA, GRANITE, QWEN3_NEXT, Projection

Feed = Callable[[Tensor], Tensor]


def feed_of(layer: Any, config: Any) -> Feed:
    """The feed-forward part of a decoder layer that has a mixer as well."""
    if config.model_type == GRANITE:
        shared = _granite_unit(layer.shared_mlp, config)
        if layer.block_sparse_moe is None:
            return shared
        experts = _granite_experts(layer.block_sparse_moe, config)
        return lambda x: experts(x) + shared(x)
    if config.model_type == QWEN3_NEXT and hasattr(layer.mlp, "experts"):
        return _qwen_experts(layer.mlp, config)
    return _gated_unit(layer.mlp, config)


def nemotron_feed(module: Any, config: Any) -> Feed:
    """A block that is a feed-forward part and nothing else."""
    activation = ACTIVATIONS[config.mlp_hidden_act]
    if not hasattr(module, "experts"):
        return _plain_unit(module, config)
    shared, gate, experts = _plain_unit(module.shared_experts, config), module.gate, module.experts

    def feed(x: Tensor) -> Tensor:
        into = module.fc1_latent_proj(x)
        out = torch.zeros_like(into)
        for expert, weight in _nemotron_choice(gate.weight.mv(x).sigmoid(), gate, config):
            out = out + weight * (experts.down_proj[expert] @ activation(experts.up_proj[expert] @ into))
        routed: Tensor = module.fc2_latent_proj(out)
        return routed + shared(x)

    return feed


def _nemotron_choice(scores_E: Tensor, gate: Any, config: Any) -> list[tuple[int, Tensor]]:
    """The experts and their weights; groups whose two best are largest are open to the choice."""
    wanted = (scores_E + gate.e_score_correction_bias).tolist()
    size = len(wanted) // config.n_group
    groups = sorted(range(config.n_group), key=lambda g: -sum(sorted(wanted[g * size : (g + 1) * size])[-2:]))
    open_ones = [e for g in groups[: config.topk_group] for e in range(g * size, (g + 1) * size)]
    chosen = sorted(open_ones, key=lambda e: -wanted[e])[: config.num_experts_per_tok]
    total = sum((scores_E[e] for e in chosen), start=scores_E.new_zeros(())) + 1e-20
    weights_K = scores_E[chosen] / total if config.norm_topk_prob else scores_E[chosen]
    return list(zip(chosen, weights_K * config.routed_scaling_factor, strict=True))


def _qwen_experts(module: Any, config: Any) -> Feed:
    shared = _gated_unit(module.shared_expert, config)

    def feed(x: Tensor) -> Tensor:
        chances_E = module.gate.weight.mv(x).softmax(dim=-1)
        chosen = chances_E.argsort(descending=True)[: config.num_experts_per_tok].tolist()
        share = chances_E[chosen].sum() if config.norm_topk_prob else 1.0
        out: Tensor = module.shared_expert_gate(x).sigmoid() * shared(x)
        for expert in chosen:
            out = out + chances_E[expert] / share * _expert(module.experts, expert, config)(x)
        return out

    return feed


def _granite_experts(module: Any, config: Any) -> Feed:
    def feed(x: Tensor) -> Tensor:
        logits_E = module.router.weight.mv(x)
        chosen = logits_E.argsort(descending=True)[: config.num_experts_per_tok].tolist()
        weights_K = logits_E[chosen].softmax(dim=-1)
        outs = [w * _expert(module.experts, e, config)(x) for e, w in zip(chosen, weights_K, strict=True)]
        return torch.stack(outs).sum(dim=0)

    return feed


def _expert(experts: Any, expert: int, config: Any) -> Feed:
    gate, up = experts.gate_up_proj[expert].chunk(2)
    return _unit(Projection([gate, up]), Projection([experts.down_proj[expert]]), config.hidden_act)


def _gated_unit(module: Any, config: Any) -> Feed:
    name = config.hidden_activation if config.model_type == GEMMA else config.hidden_act
    return _unit(Projection.of(module.gate_proj, module.up_proj), Projection.of(module.down_proj), name)


def _granite_unit(module: Any, config: Any) -> Feed:
    gate_up = Projection(module.input_linear.weight.chunk(2))
    return _unit(gate_up, Projection.of(module.output_linear), config.hidden_act)


def _unit(gate_up: Projection, down: Projection, name: str) -> Feed:
    activation = ACTIVATIONS[name]

    def feed(x: Tensor) -> Tensor:
        gate, up = gate_up(x)
        return down(activation(gate) * up)[0]

    return feed


def _plain_unit(module: Any, config: Any) -> Feed:
    up, down = Projection.of(module.up_proj), Projection.of(module.down_proj)
    activation = ACTIVATIONS[config.mlp_hidden_act]
    return lambda x: down(activation(up(x)[0]))[0]
