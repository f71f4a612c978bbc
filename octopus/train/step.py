"""One optimiser step on packed rows.

Letters: N loss terms.
"""

from __future__ import annotations

import math
import time
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch

from octopus.models.backbone import Backbone
from octopus.train.config import LossConfig, StepConfig
from octopus.train.packing import Pack
from octopus.train.passes import run_pass


@dataclass(frozen=True, kw_only=True, slots=True)
class StepResult:
    """What a step did. Log-probabilities are natural logs, means over tokens, before the update.

    Attributes:
        loss: Per loss term.
        grad_norm: Length of the gradient before clipping.
        updated: False if loss or gradient was not finite; the weights are then untouched.
        clipped_ratio: Share of the loss terms whose ratio was clipped, 0 to 1.
        log_ratio_max: Largest size of the log-probability under the trained policy minus that of the sampling one. At
            the first update on fresh rollouts it is their mismatch.
        favoured_log_probability: Of tokens with a positive advantage.
        disfavoured_log_probability: Of tokens with a negative advantage.
        packed_tokens: Rows of all packs.
        loss_terms: Sampled tokens that were trained on.
        step_seconds: Wall time of the step.
    """

    loss: float
    grad_norm: float
    updated: bool
    clipped_ratio: float
    log_ratio_max: float
    favoured_log_probability: float
    disfavoured_log_probability: float
    packed_tokens: int
    loss_terms: int
    step_seconds: float


def train_step(
    backbone: Backbone,
    packs: Sequence[Pack],
    optimizer: torch.optim.Optimizer,
    *,
    loss: LossConfig,
    step: StepConfig,
    silent_terms: int = 0,
) -> StepResult:
    """Forward, loss and backward of each pack, then one update.

    The loss is divided by the number of loss terms of the whole step, so how episodes were cut into packs does not
    change the gradient.

    Args:
        backbone: The model; its weights change in place.
        packs: The rows. Their sampled log-probabilities must be recorded, except where the loss is `likelihood`.
        optimizer: Holds the parameters of the model.
        loss: What is minimised.
        step: How the step is carried out.
        silent_terms: Number of loss terms that were not packed because their advantage is 0.
    """
    started = time.perf_counter()
    denominator = max(1, silent_terms + sum(pack.loss_terms for pack in packs))
    optimizer.zero_grad(set_to_none=True)
    results = [run_pass(backbone, pack, loss=loss, step=step, denominator=denominator) for pack in packs]
    total = sum(result.loss for result in results)
    parameters = [parameter for group in optimizer.param_groups for parameter in group["params"]]
    grad_norm = torch.nn.utils.clip_grad_norm_(parameters, step.max_grad_norm).item()
    updated = math.isfinite(total) and math.isfinite(grad_norm)
    if updated:
        optimizer.step()
    scored_N = np.concatenate([result.log_probabilities_N for result in results])
    advantages_N = np.concatenate([pack.advantages_N for pack in packs])
    log_ratio_N = scored_N - np.concatenate([pack.sampled_log_probabilities_N for pack in packs])
    return StepResult(
        loss=total,
        grad_norm=grad_norm,
        updated=updated,
        clipped_ratio=sum(result.clipped for result in results) / denominator,
        log_ratio_max=float(np.abs(log_ratio_N).max()) if len(log_ratio_N) else math.nan,
        favoured_log_probability=_mean(scored_N[advantages_N > 0]),
        disfavoured_log_probability=_mean(scored_N[advantages_N < 0]),
        packed_tokens=sum(pack.plan.length for pack in packs),
        loss_terms=len(advantages_N),
        step_seconds=time.perf_counter() - started,
    )


def _mean(values: np.ndarray) -> float:
    return float(values.mean()) if len(values) else math.nan
