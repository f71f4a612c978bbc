"""Every loss once more, as its paper writes it: one sequence at a time, over lists, with autograd for the gradient."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from octopus.train.config import LossConfig
from octopus.train.counts import Counts, term_weights
from octopus.train.losses import LossSums, TokenTerms, policy_loss


@dataclass(frozen=True, kw_only=True)
class Sequence:
    """What one agent wrote; one advantage for all of it. Log-probabilities by token."""

    new: Tensor
    anchor: Tensor
    sampled: Tensor
    reference: Tensor
    entropy: Tensor
    advantage: float


def random_sequences(lengths: tuple[int, ...], *, seed: int = 0, spread: float = 0.3) -> list[Sequence]:
    """Sequences of these lengths; about half of the ratios are out of bounds, and some importance weights too large."""
    generator = torch.Generator().manual_seed(seed)

    def near(values: Tensor) -> Tensor:
        return values + spread * torch.randn(len(values), generator=generator, dtype=torch.float64)

    def one(length: int) -> Sequence:
        new = -1 - 3 * torch.rand(length, generator=generator, dtype=torch.float64)
        return Sequence(
            new=new.requires_grad_(),
            anchor=near(new.detach()),
            sampled=near(new.detach()),
            reference=near(new.detach()),
            entropy=torch.rand(length, generator=generator, dtype=torch.float64).requires_grad_(),
            advantage=float(torch.randn((), generator=generator)),
        )

    return [one(length) for length in lengths]


def plain(sequences: list[Sequence], config: LossConfig) -> Tensor:
    """The loss of a whole step."""
    tokens = sum(len(one.new) for one in sequences)
    total = torch.zeros((), dtype=torch.float64)
    for one in sequences:
        anchor = one.sampled if config.anchor == "rollout" else one.anchor
        if config.name == "gspo":
            # One number for the sequence; it stands for each of its tokens where tokens have weights of their own.
            ratio = torch.exp((one.new - anchor).sum() / len(one.new))
            terms = [surrogate(ratio, one.advantage, config) for _ in one.new]
        else:
            terms = [token_term(new, old, one.advantage, config) for new, old in zip(one.new, anchor, strict=True)]
        length = len(one.new)
        divisor = {
            "grpo": len(sequences) * length,
            "gspo": len(sequences) * length,
            "dr_grpo": len(sequences) * config.sequence_tokens,
        }.get(config.name, tokens)
        for place, term in enumerate(terms):
            weight = 1.0
            if config.anchor == "trainer" and config.name != "likelihood":
                apart = one.anchor - one.sampled
                apart = apart.mean() if config.name == "gspo" else apart[place]
                weight = min(float(torch.exp(apart)), config.importance_cap)
            if config.kl_weight:
                away = one.reference[place] - one.new[place]
                term = term + config.kl_weight * torch.exp(one.new[place] - anchor[place]) * (away.exp() - away - 1)
            total = total + (weight * term - config.entropy_weight * one.entropy[place]) / divisor
    return total


def token_term(new: Tensor, old: Tensor, advantage: float, config: LossConfig) -> Tensor:
    """What a token adds, for the losses with a ratio for each token."""
    if config.name == "likelihood":
        return -advantage * new
    ratio = torch.exp(new - old)
    if config.name == "cispo":
        bounded = min(max(ratio.item(), 1 - config.clip_low), 1 + config.clip_high)
        return -bounded * advantage * new
    return surrogate(ratio, advantage, config)


def surrogate(ratio: Tensor, advantage: float, config: LossConfig) -> Tensor:
    """PPO's."""
    one = ratio * advantage
    other = torch.clamp(ratio, 1 - config.clip_low, 1 + config.clip_high) * advantage
    return -(one if one.item() <= other.item() else other)


def terms_of(sequences: list[Sequence], config: LossConfig, counts: Counts | None = None) -> TokenTerms:
    """The same for the library: all sequences in one row."""
    lengths = [len(one.new) for one in sequences]
    numbers = np.repeat(np.arange(len(lengths)), lengths)
    own_N = np.repeat(lengths, lengths)
    anchor = "sampled" if config.anchor == "rollout" else "anchor"

    def row(name: str) -> Tensor:
        return torch.cat([getattr(one, name) for one in sequences])

    return TokenTerms(
        log_probabilities_N=row("new"),
        entropies_N=row("entropy"),
        sampled_log_probabilities_N=row("sampled"),
        anchor_log_probabilities_N=row(anchor),
        reference_log_probabilities_N=row("reference"),
        advantages_N=torch.cat([torch.full_like(one.new, one.advantage).detach() for one in sequences]),
        sequences_N=torch.from_numpy(numbers),
        sequence_terms_N=torch.from_numpy(own_N),
        weights_N=torch.from_numpy(term_weights(config, counts or Counts.of(own_N), own_N)),
    )


def library(sequences: list[Sequence], config: LossConfig, counts: Counts | None = None) -> tuple[Tensor, LossSums]:
    """The library's loss of these sequences as (part of) a step."""
    return policy_loss(terms_of(sequences, config, counts), config)


def gradients(sequences: list[Sequence], loss: Tensor) -> list[Tensor]:
    """With respect to every log-probability and entropy."""
    leaves = [leaf for one in sequences for leaf in (one.new, one.entropy)]
    found = torch.autograd.grad(loss, leaves, allow_unused=True)
    return [torch.zeros_like(leaf) if one is None else one for leaf, one in zip(leaves, found, strict=True)]
