"""What a loss reads of a batch besides the trained policy's own log-probabilities, scored once before the updates."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from octopus.models.backbone import Backbone
from octopus.train.config import LossConfig, StepConfig
from octopus.train.packing import Pack
from octopus.train.reference import Reference, score


def scored(
    backbone: Backbone, packs: Sequence[Pack], *, loss: LossConfig, step: StepConfig, reference: Reference | None
) -> list[Pack]:
    """The packs with the log-probabilities that the loss reads; one pass without gradients over each for either kind.

    Call it once for a batch, however many updates follow: ratios stay anchored to the policy before the first.

    Args:
        backbone: The model, with the weights that the batch was sampled with.
        packs: The batch.
        loss: Says what it reads.
        step: How passes are carried out.
        reference: The policy not to stray from; must be there if the loss has a KL term.
    """
    return [_scored(backbone, pack, loss, step, reference) for pack in packs]


def _scored(
    backbone: Backbone, pack: Pack, loss: LossConfig, step: StepConfig, reference: Reference | None
) -> Pack:
    if loss.anchor == "trainer":
        pack = replace(pack, anchor_log_probabilities_N=score(backbone, pack, step=step))
    if loss.kl_weight:
        if reference is None:
            raise ValueError("expected a reference policy for the loss's KL term, came none; see new_reference")
        pack = replace(pack, reference_log_probabilities_N=reference.score(pack, step=step))
    return pack
