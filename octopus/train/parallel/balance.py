"""Which rank passes over which pack, by an estimate of the work in each."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from torch.nn import Linear, Module

from octopus.core.errors import PlanError
from octopus.models.backbone import Backbone
from octopus.train.packing import Pack
from octopus.train.parallel.split import halves

UNEVEN = 1.1
"""The heaviest rank may have this many times the mean before a pack is cut to even it out."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Work:
    """Floating-point operations of a forward pass, of which each kind takes about the same times more backward.

    Attributes:
        row: For each row: twice the weights of the layers, of experts those that are chosen, and recurrent states.
        pair: For each visible pair: scores and weighted values of all attention layers.
        term: For each loss term: its logits.
    """

    row: float
    pair: float
    term: float

    @classmethod
    def of(cls, backbone: Backbone) -> Work:
        """What a model takes, from the sizes of its layers."""
        config, shape = backbone.model.config.get_text_config(), backbone.kv_shape
        weights = sum(_weights_a_row(module, config) for module in backbone.model.model.layers.modules())
        # Decay, read, write and output of each state: source: the recurrence of arXiv 2412.06464, two operations each.
        states = 8 * shape.recurrent_layers * shape.value_heads * shape.key_dim * shape.value_dim
        return cls(
            row=2.0 * weights + states,
            pair=4.0 * shape.attention_layers * config.num_attention_heads * shape.head_dim,
            term=2.0 * config.hidden_size * config.vocab_size,
        )

    def __call__(self, pack: Pack) -> float:
        """Of a pack."""
        return self.row * pack.plan.length + self.pair * pack.plan.pairs + self.term * pack.loss_terms


def _weights_a_row(module: Module, config: Any) -> float:
    """Weights of a module itself that each row is multiplied with; the library stacks those of experts."""
    if isinstance(module, Linear):
        return module.weight.numel()
    stacked = [weight for weight in module.parameters(recurse=False) if weight.ndim == 3]
    if not stacked or not hasattr(module, "num_experts"):
        return 0
    return sum(weight.numel() for weight in stacked) * config.num_experts_per_tok / module.num_experts


def deal(packs: Sequence[Pack], work: Work, *, ranks: int) -> list[list[Pack]]:
    """Deals packs to ranks, the heaviest first, each to the rank with the least work so far.

    While the heaviest rank has more than `UNEVEN` times the mean, its heaviest pack is cut, as long as that lightens
    the heaviest rank: what the parts share is then computed twice. Every rank that calls this with the same packs gets
    the same hands.

    Returns:
        The packs of each rank, in the order given; none without loss terms.
    """
    hands = _dealt([pack for pack in packs if pack.loss_terms], work, ranks)
    while ranks > 1:
        loads = [sum(map(work, hand)) for hand in hands]
        heaviest = max(range(ranks), key=lambda rank: loads[rank])
        if loads[heaviest] <= UNEVEN * sum(loads) / ranks:
            break
        largest = max(hands[heaviest], key=work)
        try:
            parts = halves(largest)
        except PlanError:
            break
        others = [pack for hand in hands for pack in hand if pack is not largest]
        smaller = _dealt([*others, *parts], work, ranks)
        if max(sum(map(work, hand)) for hand in smaller) >= loads[heaviest]:
            break
        hands = smaller
    return hands


def _dealt(packs: Sequence[Pack], work: Work, ranks: int) -> list[list[Pack]]:
    hands: list[list[int]] = [[] for _ in range(ranks)]
    loads = [0.0] * ranks
    works = [work(pack) for pack in packs]
    for number in sorted(range(len(packs)), key=works.__getitem__, reverse=True):
        least = min(range(ranks), key=loads.__getitem__)
        hands[least].append(number)
        loads[least] += works[number]
    return [[packs[number] for number in sorted(hand)] for hand in hands]
