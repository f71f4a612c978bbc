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
from octopus.train.counts import Counts, term_weights
from octopus.train.losses import LossSums, TokenTerms, policy_loss
from octopus.train.packing import Pack
from octopus.train.targets import Targets


@dataclass(frozen=True, kw_only=True, slots=True)
class PassResult:
    """What one pass found.

    Attributes:
        loss: The pack's share of the step's loss; shares add up.
        sums: What to log about its loss terms.
        log_probabilities_N: float64, natural log, under the weights of the pass.
    """

    loss: float
    sums: LossSums
    log_probabilities_N: np.ndarray


def run_pass(backbone: Backbone, pack: Pack, *, loss: LossConfig, step: StepConfig, counts: Counts) -> PassResult:
    """Adds the gradient of a pack's share of the loss to the weights' gradients.

    Args:
        backbone: The model.
        pack: The row. Whatever log-probabilities the loss reads must be in it: see `scored`.
        loss: What is minimised.
        step: How passes are carried out.
        counts: Of the whole step: all packs, all ranks, and the terms that were not packed.

    Raises:
        PlanError: The loss is `gspo`, and of a sequence only some tokens are in the pack.
    """
    hidden_TC = backbone.packed(pack.plan, backend=step.backend)
    log_probabilities_N, entropies_N = target_scores(
        backbone,
        hidden_TC,
        pack.targets,
        logit_rows=step.logit_rows,
        entropy_gradient=loss.entropy_weight > 0,
    )

    def like(values_N: np.ndarray) -> Tensor:
        return torch.from_numpy(values_N).to(log_probabilities_N)

    from_rollout = loss.anchor == "rollout"
    anchor_N = pack.sampled_log_probabilities_N if from_rollout else pack.anchor_log_probabilities_N
    terms = TokenTerms(
        log_probabilities_N=log_probabilities_N,
        entropies_N=entropies_N,
        sampled_log_probabilities_N=like(pack.sampled_log_probabilities_N),
        anchor_log_probabilities_N=like(anchor_N),
        reference_log_probabilities_N=like(pack.reference_log_probabilities_N),
        advantages_N=like(pack.advantages_N),
        sequences_N=torch.from_numpy(pack.sequences_N).to(log_probabilities_N.device),
        sequence_terms_N=torch.from_numpy(pack.sequence_terms_N).to(log_probabilities_N.device),
        weights_N=like(term_weights(loss, counts, pack.sequence_terms_N)),
    )
    share, sums = policy_loss(terms, loss)
    if share.requires_grad:  # A pack without rows has only its embedding to differentiate, which may be frozen.
        share.backward()
    return PassResult(
        loss=share.item(), sums=sums, log_probabilities_N=log_probabilities_N.detach().double().cpu().numpy()
    )


def pack_log_probabilities(backbone: Backbone, pack: Pack, *, step: StepConfig) -> Tensor:
    """Log-probability of each target of a pack, [N], in max(fp32, the model's dtype). Differentiable."""
    hidden_TC = backbone.packed(pack.plan, backend=step.backend)
    return target_log_probabilities(backbone, hidden_TC, pack.targets, logit_rows=step.logit_rows)


def target_log_probabilities(
    backbone: Backbone, hidden_TC: Tensor, targets: Targets, *, logit_rows: int
) -> Tensor:
    """Log-probability of each label under its predictor's logits, [N]. See `target_scores`."""
    return target_scores(backbone, hidden_TC, targets, logit_rows=logit_rows)[0]


def target_scores(
    backbone: Backbone, hidden_TC: Tensor, targets: Targets, *, logit_rows: int, entropy_gradient: bool = False
) -> tuple[Tensor, Tensor]:
    """Log-probability of each label under its predictor's logits, and the entropy of these in nats, [N] and [N].

    Logits are made for predictor rows only, `logit_rows` at a time, and made again in the backward pass, so that at no
    time more than [logit_rows, V] of them exist.

    Args:
        backbone: The model.
        hidden_TC: Hidden states of the pack.
        targets: What is predicted.
        logit_rows: Rows of logits at one time.
        entropy_gradient: Whether entropies carry a gradient.
    """
    rows_N = torch.from_numpy(targets.predictor_rows_N).to(hidden_TC.device)
    labels_N = torch.from_numpy(targets.labels_N).to(hidden_TC.device)
    hidden_NC = hidden_TC[rows_N]
    pieces = [
        checkpoint(_scores, backbone, hidden, labels, entropy_gradient, use_reentrant=False)
        for hidden, labels in zip(hidden_NC.split(logit_rows), labels_N.split(logit_rows), strict=True)
    ]
    log_probabilities, entropies = zip(*pieces, strict=True)
    return torch.cat(log_probabilities), torch.cat(entropies)


def _scores(
    backbone: Backbone, hidden_NC: Tensor, labels_N: Tensor, entropy_gradient: bool
) -> tuple[Tensor, Tensor]:
    logits_NV = backbone.logits(hidden_NC)
    logits_NV = logits_NV.to(torch.promote_types(logits_NV.dtype, torch.float32))
    chosen_N = logits_NV.gather(1, labels_N[:, None])[:, 0]
    total_N = logits_NV.logsumexp(dim=1)
    with torch.set_grad_enabled(torch.is_grad_enabled() and entropy_gradient):
        entropies_N = total_N - (logits_NV.softmax(dim=1) * logits_NV).sum(dim=1)
    return chosen_N - total_N, entropies_N
