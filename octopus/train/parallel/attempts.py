"""The passes of a step on all ranks, begun anew with smaller packs where one ran out of memory.

Letters: C hidden width, V vocabulary.

No pass holds a collective. After each round of passes, one on each rank, the ranks tell each other whether one died; if
so, the attempt ends on all of them, its gradients are dropped, and only the packs that did not fit are cut.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch

from octopus.attention.plan import Plan, Slice
from octopus.core.errors import CapacityExceeded, PlanError
from octopus.models.backbone import Backbone
from octopus.train.config import LossConfig, StepConfig
from octopus.train.counts import Counts
from octopus.train.packing import Pack
from octopus.train.parallel.ranks import Ranks
from octopus.train.parallel.sharding import abandon_pass, reduce_gradients, whole
from octopus.train.parallel.split import halves
from octopus.train.passes import PassResult, run_pass

MOST_RETRIES = 6
"""Attempts after the first. Each halves what did not fit, so a pack 64 times too large is cut in time."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Passes:
    """How the passes of one step are carried out.

    Attributes:
        backbone: The model.
        loss: What is minimised.
        step: How the step is carried out.
        counts: Of the whole step.
        ranks: Those who take it together.
    """

    backbone: Backbone
    loss: LossConfig
    step: StepConfig
    counts: Counts
    ranks: Ranks


@dataclass(frozen=True, kw_only=True, slots=True)
class Done:
    """The passes of this rank in the attempt that succeeded.

    Attributes:
        packs: As they fitted.
        results: One for each.
        retries: Attempts before.
    """

    packs: tuple[Pack, ...]
    results: tuple[PassResult, ...]
    retries: int


def run_passes(passes: Passes, packs: Sequence[Pack], optimizer: torch.optim.Optimizer) -> Done:
    """Passes over this rank's packs; leaves the gradient of the whole step, sharded where the model is.

    Raises:
        CapacityExceeded: Packs cannot be cut further, or were cut `MOST_RETRIES` times, and some pass still dies. The
            gradients are then dropped.
    """
    left = [pack for pack in packs if pack.loss_terms]
    for retries in range(MOST_RETRIES + 1):
        optimizer.zero_grad(set_to_none=True)
        attempt = _attempt(passes, left)
        if not attempt.ended:
            return Done(packs=tuple(left), results=tuple(attempt.results), retries=retries)
        optimizer.zero_grad(set_to_none=True)
        left = _smaller(left, attempt.died, passes.ranks)
    raise CapacityExceeded(
        f"a training pass ran out of memory {MOST_RETRIES + 1} times, its pack cut in two each time; give the step "
        "more memory (fewer KV pages, activation checkpointing), or lower packing.budget_tokens"
    )


@dataclass(frozen=True, kw_only=True, slots=True)
class _Attempt:
    """One try.

    Attributes:
        results: Of the passes until it ended.
        died: Which pack of this rank did not fit, if one did not.
        ended: Whether a pass died on any rank.
    """

    results: list[PassResult]
    died: int | None
    ended: bool


def _attempt(passes: Passes, packs: Sequence[Pack]) -> _Attempt:
    backbone, ranks = passes.backbone, passes.ranks
    results: list[PassResult] = []
    died, ended = None, False
    with whole(backbone.model):
        rounds = int(ranks.most([len(packs)])[0])
        for number in range(rounds):
            if number < len(packs):
                result = _run(passes, packs[number])
                if result is None:
                    died = number
                else:
                    results.append(result)
            ended = ranks.most([died is not None])[0] > 0
            if ended:
                break
        reduce_gradients(backbone.model, lambda: _empty_pass(passes))
    return _Attempt(results=results, died=died, ended=ended)


def _run(passes: Passes, pack: Pack) -> PassResult | None:
    """One pass; None if memory did not suffice. What it held is free then, and part of its gradients may be there."""
    backbone = passes.backbone
    try:
        return run_pass(backbone, pack, loss=passes.loss, step=passes.step, counts=passes.counts)
    except torch.OutOfMemoryError:
        pass  # The error holds the frames of the pass and all their tensors until it is left behind.
    abandon_pass(backbone.model)
    if backbone.device.type == "cuda":
        torch.cuda.empty_cache()
    return None


def _smaller(packs: Sequence[Pack], died: int | None, ranks: Ranks) -> list[Pack]:
    """This rank's packs with the one that did not fit cut. Ranks learn of each other's failure to do so."""
    left, failure = list(packs), None
    if died is not None:
        try:
            left[died : died + 1] = halves(packs[died])
        except PlanError as error:
            failure = str(error)
    failures = {rank: text for rank, text in enumerate(ranks.gather(failure)) if text is not None}
    if failures:
        raise CapacityExceeded(
            "a training pass ran out of memory: "
            + "; ".join(f"on rank {rank} {text}" for rank, text in failures.items())
        )
    return left


def _empty_pass(passes: Passes) -> None:
    """Forward and backward of one row without a loss: reaches every weight, adds 0 to every gradient."""
    hidden_1C = passes.backbone.packed(_ONE_ROW, backend=passes.step.backend)
    logits_1V = passes.backbone.logits(hidden_1C)
    ((hidden_1C.sum() + logits_1V.sum()) * 0.0).backward()


_ONE_ROW = Plan(
    tokens_T=np.zeros(1, dtype=np.int64),
    positions_T=np.zeros(1, dtype=np.int64),
    subtree_ends_T=np.ones(1, dtype=np.int64),
    predecessors_T=np.full(1, -1),
    slices=(Slice(q0=0, q1=1, k0=0, k1=1, causal=True, shift=0),),
    starts={},
    wait_edges=(),
)
