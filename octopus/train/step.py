"""One optimiser step on packed rows, by one process or by many together.

Letters: N loss terms.
"""

from __future__ import annotations

import math
import time
from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor
from torch.distributed.tensor import DTensor

from octopus.models.backbone import Backbone
from octopus.train.config import LossConfig, StepConfig
from octopus.train.counts import Counts
from octopus.train.packing import Pack
from octopus.train.parallel.attempts import Passes, run_passes
from octopus.train.parallel.figures import Figures
from octopus.train.parallel.ranks import ALONE, Ranks

NOTHING = Counts()


@dataclass(frozen=True, kw_only=True, slots=True)
class StepResult:
    """What a step did. Log-probabilities are natural logs, means over tokens, before the update.

    Attributes:
        loss: Per loss term.
        grad_norm: Length of the gradient before clipping.
        updated: False if loss or gradient was not finite; the weights are then untouched.
        clipped_ratio: Share of the loss terms whose ratio was clipped, 0 to 1.
        capped_ratio: Share of the packed terms whose importance weight was cut to its cap, 0 to 1.
        importance: Mean importance weight of the packed terms; 1 where ratios are taken to the rollout.
        kl: Mean estimate of the KL divergence from the reference policy over the packed terms, in nats; 0 if the loss
            has no KL term.
        entropy: Mean entropy over the packed terms, in nats.
        log_ratio_max: Largest size of the log-probability under the trained policy minus that of the sampling one. At
            the first update on fresh rollouts it is their mismatch.
        mismatch_kl: Mean estimate over the packed terms of the KL divergence from the sampling policy to the trained
            one, in nats; see `Figures.mismatch`. At the first update on fresh rollouts it tells how far rollout and
            trainer are apart.
        favoured_log_probability: Of tokens with a positive advantage.
        disfavoured_log_probability: Of tokens with a negative advantage.
        packed_tokens: Rows of all packs.
        loss_terms: Sampled tokens that were trained on.
        oom_retries: How often the step was begun anew with smaller packs, for want of memory.
        step_seconds: Wall time of the step.
    """

    loss: float
    grad_norm: float
    updated: bool
    clipped_ratio: float
    capped_ratio: float
    importance: float
    kl: float
    entropy: float
    log_ratio_max: float
    mismatch_kl: float
    favoured_log_probability: float
    disfavoured_log_probability: float
    packed_tokens: int
    loss_terms: int
    oom_retries: int
    step_seconds: float


def train_step(
    backbone: Backbone,
    packs: Sequence[Pack],
    optimizer: torch.optim.Optimizer,
    *,
    loss: LossConfig,
    step: StepConfig,
    silent: Counts = NOTHING,
    ranks: Ranks = ALONE,
) -> StepResult:
    """Forward, loss and backward of each pack, then one update.

    What a loss term weighs depends on the counts of the whole step alone, so how episodes were cut into packs, and
    which rank took which, does not change the gradient. Every rank is given the same result.

    Args:
        backbone: The model; its weights change in place. With more than one rank it is sharded: see `shard`.
        packs: The rows of this rank. Whatever log-probabilities the loss reads must be in them: see `scored`.
        optimizer: Holds the parameters of the model.
        loss: What is minimised.
        step: How the step is carried out.
        silent: What no rank has packed because its advantage is 0; the same on all ranks.
        ranks: Those who take the step together.

    Raises:
        CapacityExceeded: A pass ran out of memory on some rank, and its pack cannot be cut further. Raised on all
            ranks; none has changed its weights.
    """
    started = time.perf_counter()
    own = sum((pack.counts for pack in packs), NOTHING)
    terms, sequences = ranks.total([own.terms, own.sequences])
    packed = Counts(terms=int(terms), sequences=sequences)
    passes = Passes(backbone=backbone, loss=loss, step=step, counts=packed + silent, ranks=ranks)
    done = run_passes(passes, packs, optimizer)
    figures = Figures.of(done.packs, done.results).over(ranks)
    parameters = [parameter for group in optimizer.param_groups for parameter in group["params"]]
    grad_norm = _full(torch.nn.utils.clip_grad_norm_(parameters, step.max_grad_norm)).item()
    finite = math.isfinite(figures.loss) and math.isfinite(grad_norm)
    if finite and packed.terms:
        optimizer.step()
    sums = figures.sums
    return StepResult(
        loss=figures.loss,
        grad_norm=grad_norm,
        updated=finite,
        clipped_ratio=sums.clipped / max(1, passes.counts.terms),
        capped_ratio=sums.capped / max(1, packed.terms),
        importance=_ratio(sums.importance, packed.terms),
        kl=_ratio(sums.kl, packed.terms),
        entropy=_ratio(sums.entropy, packed.terms),
        log_ratio_max=figures.log_ratio_max if packed.terms else math.nan,
        mismatch_kl=_ratio(figures.mismatch, packed.terms),
        favoured_log_probability=_ratio(figures.favoured, figures.favoured_terms),
        disfavoured_log_probability=_ratio(figures.disfavoured, figures.disfavoured_terms),
        packed_tokens=figures.packed_tokens,
        loss_terms=packed.terms,
        oom_retries=done.retries,
        step_seconds=time.perf_counter() - started,
    )


def _full(value: Tensor) -> Tensor:
    """The whole of what is sharded; a collective then."""
    return value.full_tensor() if isinstance(value, DTensor) else value


def _ratio(total: float, count: float) -> float:
    return total / count if count else math.nan
