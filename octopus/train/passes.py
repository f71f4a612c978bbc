"""One pass over a pack: forward, loss, backward. Gradients add up in the weights; nothing is updated here.

Letters: T rows of the pack, N its loss terms, C hidden width, V vocabulary.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor
from torch.utils.checkpoint import checkpoint

from octopus.models.backbone import Backbone
from octopus.train.config import LossConfig, StepConfig
from octopus.train.losses import TokenLoss, TokenTerms, grpo, likelihood
from octopus.train.packing import Pack
from octopus.train.targets import Targets


@dataclass(frozen=True, kw_only=True, slots=True)
class PassResult:
    """What one pass found.

    Attributes:
        loss: The pack's share of the step's loss; shares add up.
        clipped: Number of loss terms that are clipped and so carry no gradient.
        log_probabilities_N: float64, natural log, under the weights of the pass.
    """

    loss: float
    clipped: int
    log_probabilities_N: np.ndarray


def run_pass(
    backbone: Backbone, pack: Pack, *, loss: LossConfig, step: StepConfig, denominator: float
) -> PassResult:
    """Adds the gradient of a pack's share of the loss to the weights' gradients.

    Args:
        backbone: The model.
        pack: The row. Its sampled log-probabilities must be recorded, except where the loss is `likelihood`.
        loss: What is minimised.
        step: How passes are carried out.
        denominator: Number of loss terms of the whole step: all packs, all ranks.
    """
    log_probabilities_N = pack_log_probabilities(backbone, pack, step=step)
    terms = TokenTerms(
        log_probabilities_N=log_probabilities_N,
        sampled_log_probabilities_N=_like(pack.sampled_log_probabilities_N, log_probabilities_N),
        advantages_N=_like(pack.advantages_N, log_probabilities_N),
    )
    part = _token_loss(terms, loss, denominator)
    part.loss.backward()
    return PassResult(
        loss=part.loss.item(),
        clipped=int(part.clipped),
        log_probabilities_N=log_probabilities_N.detach().double().cpu().numpy(),
    )


def _token_loss(terms: TokenTerms, config: LossConfig, denominator: float) -> TokenLoss:
    if config.name == "likelihood":
        return likelihood(terms, denominator=denominator)
    return grpo(terms, clip_low=config.clip_low, clip_high=config.clip_high, denominator=denominator)


def pack_log_probabilities(backbone: Backbone, pack: Pack, *, step: StepConfig) -> Tensor:
    """Log-probability of each target of a pack, [N], in max(fp32, the model's dtype). Differentiable."""
    hidden_TC = backbone.packed(pack.plan, backend=step.backend)
    return target_log_probabilities(backbone, hidden_TC, pack.targets, logit_rows=step.logit_rows)


def target_log_probabilities(
    backbone: Backbone, hidden_TC: Tensor, targets: Targets, *, logit_rows: int
) -> Tensor:
    """Log-probability of each label under its predictor's logits, [N].

    Logits are made for predictor rows only, `logit_rows` at a time, and made again in the backward pass, so that at no
    time more than [logit_rows, V] of them exist.
    """
    rows_N = torch.from_numpy(targets.predictor_rows_N).to(hidden_TC.device)
    labels_N = torch.from_numpy(targets.labels_N).to(hidden_TC.device)
    pieces = [
        checkpoint(_log_probabilities, backbone, hidden_TC[rows], labels, use_reentrant=False)
        for rows, labels in zip(rows_N.split(logit_rows), labels_N.split(logit_rows), strict=True)
    ]
    return torch.cat(pieces)


def _log_probabilities(backbone: Backbone, hidden_NC: Tensor, labels_N: Tensor) -> Tensor:
    logits_NV = backbone.logits(hidden_NC)
    logits_NV = logits_NV.to(torch.promote_types(logits_NV.dtype, torch.float32))
    chosen_N = logits_NV.gather(1, labels_N[:, None])[:, 0]
    return chosen_N - logits_NV.logsumexp(dim=1)


def _like(values_N: np.ndarray, other: Tensor) -> Tensor:
    return torch.from_numpy(values_N).to(other)
