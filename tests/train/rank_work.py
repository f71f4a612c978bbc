"""What tests have each rank do: the same functions also run in one process alone, to compare with."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import asdict, dataclass, replace
from typing import Any, Literal

import numpy as np
import tiny_policy
import torch
from scripted import group
from tiny_models import checkpointed, tiny_llama, tiny_qwen35
from torch.distributed.tensor import DTensor
from toy_tasks import ToyTasks

from octopus.core.errors import CapacityExceeded
from octopus.models.backbone import Backbone
from octopus.train.adapter import add_adapter
from octopus.train.config import AdapterConfig, LossConfig, OptimizerConfig, StepConfig
from octopus.train.credit.crediting import Crediting
from octopus.train.job_config import (
    GrpoConfig,
    ImitationConfig,
    JobConfig,
    JobRunConfig,
    PackingConfig,
    RolloutConfig,
    TaskConfig,
)
from octopus.train.optimizer import new_optimizer
from octopus.train.packing import Pack, evenly, pack_rated
from octopus.train.parallel.balance import Work, deal
from octopus.train.parallel.ranks import Ranks
from octopus.train.parallel.sharding import shard
from octopus.train.parallel.shared_rollouts import SharedRollouts
from octopus.train.parallel.split import split
from octopus.train.players import new_engine, new_rollouts
from octopus.train.reference import new_reference
from octopus.train.stages import Imitation, Reinforcement
from octopus.train.step import train_step

FAMILIES = {"llama": tiny_llama, "qwen35": tiny_qwen35}
STEP = StepConfig(max_grad_norm=0.05)  # Shorter than any gradient here, so that clipping counts.
Tensors = dict[str, np.ndarray]


def episodes_pack(copies: int = 1, episodes: int = 3) -> Pack:
    """The scripted group, played so many times, as one row: its first episodes, of a policy that is a little off."""
    worths = (1.0, -0.5, 0.7)
    rated = [
        evenly(episode, worth) for _ in range(copies) for episode, worth in zip(group(), worths, strict=True)
    ]
    made = pack_rated(rated[:episodes] if copies == 1 else rated)
    off_N = np.random.default_rng(0).normal(scale=0.2, size=made.loss_terms)
    return replace(made, sampled_log_probabilities_N=off_N - 3.0)


@dataclass(frozen=True, kw_only=True)
class Shortage:
    """Memory for so many rows: a larger pass dies, on one rank, in its first layer.

    Forward nothing has been added to any gradient then; backward all layers above have left theirs.
    """

    rows: int
    where: Literal["forward", "backward"]
    rank: int = 0

    def strike(self, layer: torch.nn.Module, ranks: Ranks) -> None:
        """Lets passes through the layer die."""

        def die(_: torch.Tensor) -> None:
            raise torch.OutOfMemoryError("no memory left, for a test")

        def check(_: torch.nn.Module, __: object, out: torch.Tensor) -> None:
            if out.shape[1] > self.rows and ranks.rank == self.rank:
                if self.where == "forward":
                    die(out)
                out.register_hook(die)

        layer.register_forward_hook(check)


def three_steps(
    ranks: Ranks,
    *,
    family: str,
    rows: int | None = None,
    copies: int = 1,
    episodes: int = 3,
    adapter: bool = False,
    recompute: bool = False,
    shortage: Shortage | None = None,
    compute_dtype: torch.dtype | None = None,
    dtype: torch.dtype = torch.float64,
    steps: int = 3,
) -> dict[str, Any]:
    """Steps on the scripted group; what they found, the last gradient and the weights after them."""
    torch.manual_seed(0)  # Adapters draw their first weights.
    model = FAMILIES[family](dtype=dtype)
    if adapter:
        add_adapter(model, AdapterConfig(rank=4, alpha=8))
    backbone = Backbone(checkpointed(model) if recompute else model)
    packed = episodes_pack(copies, episodes)
    packs = [packed] if rows is None else split(packed, budget_tokens=rows)
    hands = deal(packs, Work.of(backbone), ranks=ranks.size)
    if shortage is not None:
        shortage.strike(backbone.model.model.layers[0], ranks)
    shard(backbone.model, ranks, compute_dtype=compute_dtype)
    optimizer = new_optimizer(backbone.model, OptimizerConfig(learning_rate=0.01))
    results, error = [], None
    for _ in range(steps):
        try:
            results.append(
                train_step(backbone, hands[ranks.rank], optimizer, loss=LossConfig(), step=STEP, ranks=ranks)
            )
        except CapacityExceeded as refusal:
            error = str(refusal)
    return {
        "results": [asdict(result) for result in results],
        "gradients": full(backbone, lambda parameter: parameter.grad),
        "weights": full(backbone, lambda parameter: parameter.detach()),
        "passes": len(hands[ranks.rank]),
        "error": error,
    }


def full(backbone: Backbone, of: Callable[[torch.nn.Parameter], torch.Tensor | None]) -> Tensors:
    """Something of every trainable parameter, whole."""
    found = {}
    for name, parameter in backbone.model.named_parameters():
        value = of(parameter)
        if value is not None and parameter.requires_grad:
            found[name] = (value.full_tensor() if isinstance(value, DTensor) else value).clone().numpy()
    return found


def one_pack(ranks: Ranks) -> dict[str, Any]:
    """Three steps on a single episode, whose root reads all of it: a pack that cannot be cut."""
    return three_steps(ranks, family="qwen35", episodes=1)


def gathered(ranks: Ranks) -> list[Any]:
    """A value of each of two ranks."""
    return ranks.gather([[0.1, None, "é"], [1 / 3, -math.inf, "é" * 1000]][ranks.rank])


def stage_steps(ranks: Ranks) -> dict[str, Any]:
    """A step of imitation and one of reinforcement with two updates, on a policy from nothing, in float64.

    Its rollouts earn nothing, so what moves the weights is the entropy term.
    """
    config = JobConfig(
        kind="job",
        run=JobRunConfig(folder="nowhere"),
        task=TaskConfig(parts=(1, 2)),
        rollout=RolloutConfig(turn_tokens=8, turns=2, pages=512, state_slots=256, episodes=8),
        imitation=ImitationConfig(steps=1, episodes=3, optimizer=OptimizerConfig(learning_rate=1e-2)),
        grpo=GrpoConfig(
            steps=1, questions=3, rollouts=2, updates=2, loss=LossConfig(entropy_weight=0.1, kl_weight=0.1)
        ),
        packing=PackingConfig(budget_tokens=200),
    )
    codec, tasks = tiny_policy.codec(), ToyTasks(config)
    engine = new_engine(tiny_policy.model().double(), codec, config.rollout)
    model = engine.backbone.model
    rollouts = new_rollouts(engine, codec, config.rollout, temperature=1.0)
    imitation = Imitation(config, backbone=engine.backbone, codec=codec, tasks=tasks, ranks=ranks)
    reinforcement = Reinforcement(
        config,
        backbone=engine.backbone,
        rollouts=SharedRollouts(rollouts, engine, ranks),
        tasks=tasks,
        crediting=Crediting(config, backbone=engine.backbone, dialect=codec, new_engine=lambda: engine),
        reference=new_reference(engine.backbone),
        ranks=ranks,
    )
    shard(model, ranks)
    done = []
    for stage in (imitation, reinforcement):
        done.append(stage.step(1, new_optimizer(model, stage.optimizer)))
        engine.advance_weights()
    return {
        "results": [step.figures for step in done],
        "gradients": {},
        "weights": full(engine.backbone, lambda parameter: parameter.detach()),
        "error": None,
        "names": [record.episode.name for record in done[1].records],
        "asked": [f"{task.name}/{number}" for task in tasks.training(1) for number in range(2)],
        "texts": [[segment.tokens for segment in record.episode.segments] for record in done[1].records],
    }
