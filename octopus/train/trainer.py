"""A run: steps, saves, metrics and progress."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import asdict, replace
from pathlib import Path

import numpy as np
import torch
from transformers import set_seed

from octopus.models.backbone import Backbone
from octopus.models.loading import load_model
from octopus.rollout.script import scripted_group
from octopus.train import saves
from octopus.train.config import TrainConfig, run_digest
from octopus.train.journal import Journal, read_journal
from octopus.train.loggers import Loggers
from octopus.train.optimizer import new_optimizer, set_learning_rate
from octopus.train.packing import Groups, Pack, pack
from octopus.train.preparing import prepare
from octopus.train.reference import score
from octopus.train.step import StepResult, train_step
from octopus.train.stopping import Abandoned, Stopping

Report = Callable[[str], None]


class Trainer:
    """Trains a backbone on a fixed set of episodes.

    Sampled tokens without a recorded log-probability are scored once, with the weights that the trainer is given: those
    are the policy that the clip is anchored to, also after a resume.
    """

    def __init__(
        self,
        config: TrainConfig,
        *,
        backbone: Backbone,
        groups: Groups,
        report: Report = print,
        stopping: Stopping | None = None,
    ) -> None:
        """Prepares a run.

        Args:
            config: The run. Its task and model sections are not read: the episodes and the backbone are given.
            backbone: The model with its first weights, not those of a save.
            groups: The episodes, those of one task together.
            report: Receives one line of progress at a time.
            stopping: Asks it to save and leave; if there is none, nobody does.

        Raises:
            OctopusError: The run's folder holds saves and the configuration does not say `resume`, or none is whole.
            ConfigError: It holds saves of another run.
        """
        self.config = config
        self.backbone = backbone
        self.report = report
        self.folder = Path(config.run.folder)
        prepare(backbone.model, adapter=config.adapter, step=config.step)
        self.optimizer = new_optimizer(backbone.model, config.optimizer)
        self._run = run_digest(config)
        self._stopping = stopping or Stopping(limit_s=config.run.stop_seconds)
        found = saves.to_resume(self.folder, resume=config.run.resume, report=report)
        self.pack = self._score(pack(groups, divide_by_deviation=config.loss.divide_by_deviation))
        self.step, self._saved_step = 0, -1
        if found is not None:
            self.step = saves.load(found, model=backbone.model, optimizer=self.optimizer, run=self._run)
            self._saved_step = self.step
            report(f"resumed from {found.path}")
        saves.tidy(self.folder)
        self._generators = saves.generators()

    def run(self) -> list[StepResult]:
        """Runs the steps that are left and returns their results.

        Raises:
            Stopped: It was asked to, and has saved.
        """
        run = self.config.run
        metrics = Journal(self.folder / "metrics.jsonl", step=self.step)
        kept = read_journal(metrics.path)
        loggers = Loggers(
            run.loggers,
            folder=self.folder,
            project=run.project,
            config=asdict(self.config),
            last=kept[-1] if kept else None,
        )
        self.report(
            f"pack: {self.pack.plan.length:,} tokens in {len(self.pack.plan.starts)} segments, "
            f"{self.pack.loss_terms:,} loss terms"
        )
        try:
            return list(self._steps(metrics, loggers))
        except Abandoned:
            metrics.flush()
            self._save()
            name = saves.path_of(self.folder, self.step).name
            raise self._stopping.stopped(
                f"after step {self.step} of {run.steps}; {name} holds it, run.resume=true goes on from there"
            ) from None
        finally:
            loggers.close()

    def _steps(self, metrics: Journal, loggers: Loggers) -> Iterator[StepResult]:
        last, every = self.config.run.steps, self.config.run.save_every_steps
        while self.step < last:
            if self._stopping.asked:
                raise Abandoned
            set_learning_rate(self.optimizer, self.config.optimizer, step=self.step + 1, steps=last)
            with self._stopping.abandonable(self.optimizer):
                result = train_step(
                    self.backbone, [self.pack], self.optimizer, loss=self.config.loss, step=self.config.step
                )
            self.step += 1
            self._generators = saves.generators()
            metrics.write(self.step, asdict(result))
            loggers.write(self.step, asdict(result))
            self.report(_progress(self.step, last, result))
            if self.step % every == 0 or self.step == last:
                metrics.flush()
                self._save()
            yield result

    def _save(self) -> None:
        """Saves the last step that was finished, unless that was done before."""
        if self.step == self._saved_step:
            return
        path = saves.save(
            self.folder,
            step=self.step,
            model=self.backbone.model,
            optimizer=self.optimizer,
            run=self._run,
            generators=self._generators,
        )
        self._saved_step = self.step
        self.report(f"saved {path}")

    def _score(self, pack: Pack) -> Pack:
        """Fills in all log-probabilities that were not recorded: the weights are still those of the first policy."""
        scored_N = score(self.backbone, pack, step=self.config.step)
        recorded_N = pack.sampled_log_probabilities_N
        return replace(
            pack,
            sampled_log_probabilities_N=np.where(np.isnan(recorded_N), scored_N, recorded_N),
            anchor_log_probabilities_N=scored_N,
            reference_log_probabilities_N=scored_N,
        )


def train(config: TrainConfig, *, report: Report = print) -> list[StepResult]:
    """Loads the model, plays the script of the task and runs the whole training.

    Raises:
        Stopped: By a signal.
    """
    stopping = Stopping(limit_s=config.run.stop_seconds)
    with stopping.signals():
        set_seed(config.run.seed)
        model, tokenizer = load_model(
            config.model.name,
            dtype=getattr(torch, config.model.dtype),
            device=config.model.device,
            gguf_file=config.model.gguf_file,
        )
        group = scripted_group(config.task, lambda text: tokenizer.encode(text, add_special_tokens=False))
        backbone = Backbone(model)
        return Trainer(config, backbone=backbone, groups=[group], report=report, stopping=stopping).run()


def _progress(step: int, steps: int, result: StepResult) -> str:
    line = (
        f"step {step:>{len(str(steps))}}/{steps}   loss {result.loss:+.5f}   grad norm {result.grad_norm:.3g}   "
        f"log p of favoured {result.favoured_log_probability:.3f}, of disfavoured "
        f"{result.disfavoured_log_probability:.3f} nats   clipped {result.clipped_ratio:.0%}   "
        f"{result.step_seconds:.1f} s"
    )
    return line if result.updated else line + "   NOT FINITE, weights left as they were"
