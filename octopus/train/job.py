"""A job from beginning to end: imitation, reinforcement, evaluation on the way, saves, resume, the final table.

The run folder:

    config.toml          what is run, defaults included
    metrics.jsonl        one line a step
    episodes.jsonl       one line an episode that was learned from
    evaluations.jsonl    one line an evaluation, with the result of each question
    trace.jsonl          events of the graph in the last step before the newest save
    reward.svg           the curve
    step-000040/         a save; the newest and the best are kept
    best/                the policy of the best save, once the job has finished

Everything that a step does is a function of the configuration, the step's number and the weights, so a run that is
killed and resumed repeats what it lost: journals are cut back to the save, and rollouts are keyed by seeds.
"""

from __future__ import annotations

import shutil
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch
from transformers import PreTrainedModel

from octopus.core.errors import ConfigError, OctopusError
from octopus.core.trace import Trace
from octopus.retrieval.questions import Split
from octopus.rollout.codec import Codec
from octopus.rollout.records import as_json
from octopus.train import saves
from octopus.train.evaluate import evaluate
from octopus.train.job_config import JobConfig, load_job, same_run
from octopus.train.journal import Journal, read_journal, write_whole
from octopus.train.players import new_engine, new_rollouts
from octopus.train.plot import reward_plot
from octopus.train.policy import BEST, load_policy, policy_folder, save_policy
from octopus.train.progress import Progress
from octopus.train.report import final_table, match_of, speed
from octopus.train.schema import toml
from octopus.train.stages import Imitation, Reinforcement, Stage, new_optimizer
from octopus.train.tasks import LibraryTasks, Tasks

Report = Callable[[str], None]


class Job:
    """One run of a configuration on a policy."""

    def __init__(
        self, config: JobConfig, *, model: PreTrainedModel, codec: Codec, tasks: Tasks, report: Report = print
    ) -> None:
        """Prepares a run.

        Args:
            config: The run. Its model section is not read: the policy is given.
            model: With its first weights, not those of a save.
            codec: The model's.
            tasks: What is asked.
            report: Receives one line of progress at a time.

        Raises:
            OctopusError: The run's folder holds saves and the configuration does not say `resume`.
            ConfigError: It holds saves of another run.
        """
        self.config = config
        self.folder = Path(config.run.folder)
        self._report = report
        self._last = config.imitation.steps + config.grpo.steps
        newest = saves.newest(self.folder)
        self._refuse_foreign(newest)
        for leftover in self.folder.glob(".saving-*"):  # of a run that was killed while it saved
            shutil.rmtree(leftover)
        self._codec = codec
        self._trace = Trace()
        self._engine = engine = new_engine(model, codec, config.rollout, trace=self._trace)
        self._tasks = tasks
        sampling = new_rollouts(engine, codec, config.rollout, temperature=config.rollout.temperature)
        self._greedy = new_rollouts(engine, codec, config.rollout, temperature=0.0)
        self._imitation = Imitation(config, backbone=engine.backbone, codec=codec, tasks=tasks)
        self._reinforcement = Reinforcement(config, backbone=engine.backbone, rollouts=sampling, tasks=tasks)
        self._optimizer = new_optimizer(engine.backbone.model, self._stage(1)[0].optimizer)
        self.step = 0
        if newest is not None:
            self.step = self._load(newest)
            report(f"resumed from {newest}")
        kept = -1 if newest is None else self.step
        self._metrics = Journal(self.folder / "metrics.jsonl", step=kept)
        self._episodes = Journal(self.folder / "episodes.jsonl", step=kept)
        self._evaluations = Journal(self.folder / "evaluations.jsonl", step=kept)
        write_whole(self.folder / "config.toml", toml(replace(config, run=replace(config.run, resume=False))))

    def run(self) -> str:
        """Runs what is left; returns the final table."""
        if saves.newest(self.folder) is None:
            self._milestone()
        progress = Progress(self._report)
        while self.step < self._last:
            self.step += 1
            stage, number, of = self._stage(self.step)
            if number == 1:
                self._optimizer = new_optimizer(self._engine.backbone.model, stage.optimizer)
            progress.begin(stage.name, number, of)
            self._trace.events.clear()
            done = stage.step(number, self._optimizer)
            self._engine.advance_weights()
            self._metrics.write(self.step, {"stage": stage.name} | done.figures)
            self._episodes.write(self.step, *map(as_json, done.records))
            progress.end(done.figures)
            self._milestone()
        return self._finish()

    # ---- inner workings ----

    def _stage(self, step: int) -> tuple[Stage, int, int]:
        """The stage of a step, from 1, the step's number in it, from 1, and its number of steps."""
        imitation = self.config.imitation.steps
        if step <= imitation:
            return self._imitation, step, imitation
        return self._reinforcement, step - imitation, self.config.grpo.steps

    def _milestone(self) -> None:
        """Evaluates and saves, if either is due after this step. The save comes last: it vouches for all lines."""
        run, evaluation = self.config.run, self.config.evaluation
        events = self._trace.events[: run.trace_events]
        number = self.step - self.config.imitation.steps
        evaluates = number >= 0 and (number % evaluation.every_steps == 0 or self.step == self._last)
        if number == 0:
            self._evaluate("before", "test", weights_step=self.step)
        if evaluates:
            self._evaluate("validation", "validation", weights_step=self.step)
        if evaluates or self.step % run.save_every_steps == 0:
            self._write_trace(events)
            self._save()

    def _evaluate(self, name: str, split: Split, *, weights_step: int) -> None:
        result = evaluate(self._greedy, self._tasks.held_out(split))
        step = self.step + (name == "after")  # What comes after the last save is done again by a resume.
        self._evaluations.write(step, {"name": name, "weights_step": weights_step} | result.as_json())
        self._report(
            f"evaluation {name}: {result.exact_match:.3f} of {len(result.correct)} {split} questions exactly right "
            f"({result.seconds:.1f} s)"
        )

    def _save(self) -> None:
        for journal in (self._metrics, self._episodes, self._evaluations):
            journal.flush()
        path = saves.save(self.folder, step=self.step, model=self._engine.backbone.model, optimizer=self._optimizer)
        best = self._best()
        for other in self.folder.glob("step-*"):
            if other not in (path, best):
                shutil.rmtree(other)

    def _best(self) -> Path:
        """The save with the best validation result, the later one of equals; the newest if there was no evaluation."""
        lines = [line for line in read_journal(self._evaluations.path) if line["name"] == "validation"]
        best = max(lines, key=lambda line: (match_of(line), line["step"]), default={"step": self.step})
        return self.folder / f"step-{best['step']:06d}"

    def _load(self, path: Path) -> int:
        """Restores a save, with the optimizer of the stage that it was made in, and returns its step."""
        stage, _, _ = self._stage(max(1, int(path.name.removeprefix("step-"))))
        model = self._engine.backbone.model
        self._optimizer = new_optimizer(model, stage.optimizer)
        step = saves.load(path, model=model, optimizer=self._optimizer)
        self._engine.advance_weights()
        return step

    def _finish(self) -> str:
        """Evaluates the best save on test questions and leaves its policy."""
        self._evaluate("after", "test", weights_step=self._load(self._best()))
        save_policy(self.folder / BEST, self._engine.backbone.model, self._codec)
        metrics, evaluations = read_journal(self._metrics.path), read_journal(self._evaluations.path)
        plot = reward_plot(
            [(line["step"], line["reward"]) for line in metrics if "reward" in line],
            [(line["step"], match_of(line)) for line in evaluations if line["name"] == "validation"],
            title=self.folder.name,
        )
        write_whole(self.folder / "reward.svg", plot)
        table = final_table(self.folder)
        self._report(f"\n{table}\n{speed(self.folder)}")
        return table

    def _write_trace(self, events: list[tuple[Any, ...]]) -> None:
        trace = Trace()
        trace.events = events
        write_whole(self.folder / "trace.jsonl", "".join(f"{line}\n" for line in trace.json_lines()))

    def _refuse_foreign(self, newest: Path | None) -> None:
        """Refuses a folder with saves, unless they are this very run's and it is to be resumed."""
        if newest is None:
            return
        if not self.config.run.resume:
            raise OctopusError(
                f"{self.folder} holds saves up to {newest.name}; set run.resume=true to go on from there, or choose "
                "another run.folder"
            )
        if not same_run(load_job(self.folder / "config.toml"), self.config):
            raise ConfigError(
                f"{self.folder} holds saves of another configuration; resume with its config.toml, or choose another "
                "run.folder"
            )


def run_job(config: JobConfig, *, report: Report = print) -> str:
    """Loads the policy, runs the whole job and returns its final table."""
    torch.manual_seed(config.run.seed)
    folder, dtype = policy_folder(config.model.name), getattr(torch, config.model.dtype)
    model, codec = load_policy(folder, dtype=dtype, device=config.model.device)
    return Job(config, model=model, codec=codec, tasks=LibraryTasks(config), report=report).run()
