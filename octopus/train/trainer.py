"""A run: steps, saves, metrics and progress."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import asdict, replace
from pathlib import Path

import numpy as np
import torch

from octopus.core.errors import OctopusError
from octopus.models.backbone import Backbone
from octopus.models.loading import load_model
from octopus.rollout.script import scripted_group
from octopus.train import saves
from octopus.train.config import TrainConfig
from octopus.train.journal import Journal
from octopus.train.packing import Groups, Pack, pack
from octopus.train.passes import pack_log_probabilities
from octopus.train.step import StepResult, train_step

Report = Callable[[str], None]


class Trainer:
    """Trains a backbone on a fixed set of episodes.

    Sampled tokens without a recorded log-probability are scored once, with the weights that the trainer is given: those
    are the policy that the clip is anchored to, also after a resume.
    """

    def __init__(self, config: TrainConfig, *, backbone: Backbone, groups: Groups, report: Report = print) -> None:
        """Prepares a run.

        Args:
            config: The run. Its task and model sections are not read: the episodes and the backbone are given.
            backbone: The model with its first weights, not those of a save.
            groups: The episodes, those of one task together.
            report: Receives one line of progress at a time.

        Raises:
            OctopusError: The run's folder holds saves and the configuration does not say `resume`.
        """
        self.config = config
        self.backbone = backbone
        self.report = report
        self.folder = Path(config.run.folder)
        self.optimizer = torch.optim.AdamW(
            backbone.model.parameters(),
            lr=config.optimizer.learning_rate,
            betas=(config.optimizer.beta1, config.optimizer.beta2),
            weight_decay=config.optimizer.weight_decay,
        )
        newest = saves.newest(self.folder)
        if newest is not None and not config.run.resume:
            raise OctopusError(
                f"{self.folder} holds saves up to {newest.name}; set run.resume=true to go on from there, or choose "
                "another run.folder"
            )
        self.pack = self._score(pack(groups, divide_by_deviation=config.loss.divide_by_deviation))
        self.step = 0
        if newest is not None:
            self.step = saves.load(newest, model=backbone.model, optimizer=self.optimizer)
            report(f"resumed from {newest}")

    def run(self) -> list[StepResult]:
        """Runs the steps that are left and returns their results."""
        last, every = self.config.run.steps, self.config.run.save_every_steps
        metrics = Journal(self.folder / "metrics.jsonl", step=self.step)
        self.report(
            f"pack: {self.pack.plan.length:,} tokens in {len(self.pack.plan.starts)} segments, "
            f"{self.pack.loss_terms:,} loss terms"
        )
        results = []
        while self.step < last:
            result = train_step(
                self.backbone, [self.pack], self.optimizer, loss=self.config.loss, step=self.config.step
            )
            self.step += 1
            results.append(result)
            metrics.write(self.step, asdict(result))
            self.report(_progress(self.step, last, result))
            if self.step % every == 0 or self.step == last:
                path = saves.save(
                    self.folder, step=self.step, model=self.backbone.model, optimizer=self.optimizer
                )
                self.report(f"saved {path}")
        return results

    def _score(self, pack: Pack) -> Pack:
        """Fills in the log-probabilities that were not recorded."""
        missing_N = np.isnan(pack.sampled_log_probabilities_N)
        if not missing_N.any():
            return pack
        with torch.no_grad():
            scored_N = pack_log_probabilities(self.backbone, pack, step=self.config.step).double().cpu().numpy()
        return replace(
            pack, sampled_log_probabilities_N=np.where(missing_N, scored_N, pack.sampled_log_probabilities_N)
        )


def train(config: TrainConfig, *, report: Report = print) -> list[StepResult]:
    """Loads the model, plays the script of the task and runs the whole training."""
    torch.manual_seed(config.run.seed)
    model, tokenizer = load_model(
        config.model.name,
        dtype=getattr(torch, config.model.dtype),
        device=config.model.device,
        gguf_file=config.model.gguf_file,
    )
    group = scripted_group(config.task, lambda text: tokenizer.encode(text, add_special_tokens=False))
    return Trainer(config, backbone=Backbone(model), groups=[group], report=report).run()


def _progress(step: int, steps: int, result: StepResult) -> str:
    line = (
        f"step {step:>{len(str(steps))}}/{steps}   loss {result.loss:+.5f}   grad norm {result.grad_norm:.3g}   "
        f"log p of favoured {result.favoured_log_probability:.3f}, of disfavoured "
        f"{result.disfavoured_log_probability:.3f} nats   clipped {result.clipped_ratio:.0%}   "
        f"{result.step_seconds:.1f} s"
    )
    return line if result.updated else line + "   NOT FINITE, weights left as they were"
