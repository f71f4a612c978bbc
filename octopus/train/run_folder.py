"""The folder of a job.

    config.toml          what is run, defaults included
    metrics.jsonl        one line a step
    episodes.jsonl       one line an episode that was learned from
    evaluations.jsonl    one line an evaluation, with the result of each question
    trace.jsonl          events of the graph in the last step before the newest save
    reward.svg           the curve
    step-000040/         a save; the newest and the best are kept
    latest               the name of the newest
    best/                the policy of the best save, once the job has finished

Journals are cut back to the save that a job goes on from, so that no line stands in them twice.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import torch

from octopus.core.errors import DamagedSave, OctopusError
from octopus.core.trace import Trace
from octopus.rollout.logs import new_logger
from octopus.rollout.records import RolloutRecord, as_json
from octopus.train import saves
from octopus.train.disk import write_whole
from octopus.train.evaluate import Evaluation
from octopus.train.job_config import JobConfig, job_digest
from octopus.train.journal import Journal, read_journal
from octopus.train.loggers import Loggers
from octopus.train.parallel.ranks import present
from octopus.train.plot import reward_plot
from octopus.train.policy import BEST
from octopus.train.report import match_of
from octopus.train.schema import toml

LOGGER = new_logger(__name__)

Events = Sequence[tuple[Any, ...]]


class RunFolder:
    """What a job has on the disk: its journals, cut back to the save that it goes on from, and its saves.

    Of several ranks all call it, and the first one writes. Their disk is one.
    """

    def __init__(self, config: JobConfig, *, report: Callable[[str], None]) -> None:
        """Looks for a save to go on from. Nothing is written.

        Raises:
            OctopusError: There are saves, and the configuration does not say `resume`, or none of them is whole.
        """
        self._config = config
        self._report = report
        self._run = job_digest(config)
        self._ranks = present()
        self._lead = self._ranks.first
        self.path = Path(config.run.folder)
        self.best_policy = self.path / BEST
        self.save_to_resume = saves.to_resume(self.path, resume=config.run.resume, report=self._tell_damage)
        self._saved_step = -1 if self.save_to_resume is None else self.save_to_resume.step

    def begin(self) -> None:
        """Opens the journals after the save was loaded.

        Lines of later steps are dropped, and evaluations of the save's own step too: they come after it, and are done
        again.
        """
        if not self._lead:
            return
        step = self._saved_step
        saves.tidy(self.path)
        self._metrics = Journal(self.path / "metrics.jsonl", step=step)
        self._episodes = Journal(self.path / "episodes.jsonl", step=step)
        self._evaluations = Journal(self.path / "evaluations.jsonl", step=step - 1)
        config = replace(self._config, run=replace(self._config.run, resume=False))
        write_whole(self.path / "config.toml", toml(config))
        run = self._config.run
        lines = read_journal(self._metrics.path)
        self._loggers = Loggers(
            run.loggers,
            folder=self.path,
            project=run.project,
            config=asdict(config),
            last=lines[-1] if lines else None,
        )

    def close(self) -> None:
        """Lets loggers send what they still hold."""
        if self._lead:
            self._loggers.close()

    def write_step(self, step: int, figures: Mapping[str, Any], records: Sequence[RolloutRecord]) -> None:
        """What a step brought."""
        if not self._lead:
            return
        self._metrics.write(step, figures)
        self._episodes.write(step, *map(as_json, records))
        self._loggers.write(step, figures)

    def write_evaluation(self, step: int, name: str, evaluation: Evaluation, *, weights_step: int) -> None:
        """What the weights of a step answered."""
        if not self._lead:
            return
        self._evaluations.write(step, {"name": name, "weights_step": weights_step} | evaluation.as_json())
        self._loggers.write(step, {f"evaluation/{name}": evaluation.exact_match})

    def save(
        self,
        step: int,
        *,
        model: torch.nn.Module,
        optimizer: torch.optim.Optimizer,
        generators: Mapping[str, Any],
        events: Events,
    ) -> bool:
        """Saves the state after a step unless that was done before; whether it did. It vouches for all lines so far."""
        if step == self._saved_step:
            return False
        if self._lead:
            trace = Trace()
            trace.events = list(events)
            write_whole(self.path / "trace.jsonl", "".join(f"{line}\n" for line in trace.json_lines()))
            for journal in (self._metrics, self._episodes, self._evaluations):
                journal.flush()
        saves.save(self.path, step=step, model=model, optimizer=optimizer, run=self._run, generators=generators)
        self._saved_step = step
        return True

    def load(self, save: saves.Save, *, model: torch.nn.Module, optimizer: torch.optim.Optimizer) -> int:
        """Restores a save and returns its step.

        Raises:
            ConfigError: It is of another configuration.
        """
        return saves.load(save, model=model, optimizer=optimizer, run=self._run)

    def prune(self) -> None:
        """Deletes all saves but the newest and the best."""
        if self._lead:
            saves.prune(self.path, keep={self._saved_step, *self._ranked()[:1]})

    def best(self) -> saves.Save:
        """The whole save with the best validation result, the later one of equals.

        Raises:
            OctopusError: None is whole.
        """
        self._ranks.meet()  # The first one has written what the others read.
        for step in self._ranked():
            try:
                return saves.check(saves.path_of(self.path, step))
            except DamagedSave as damage:
                self._tell_damage(f"damaged: {damage}")
        raise OctopusError(f"{self.path}: none of the saves that were evaluated is whole")

    def draw(self) -> None:
        """Draws the curve."""
        if not self._lead:
            return
        metrics, evaluations = read_journal(self._metrics.path), self._read_evaluations()
        plot = reward_plot(
            [(line["step"], line["reward"]) for line in metrics if "reward" in line],
            [(line["step"], match_of(line)) for line in evaluations if line["name"] == "validation"],
            title=self.path.name,
        )
        write_whole(self.path / "reward.svg", plot)

    def _tell_damage(self, line: str) -> None:
        self._report(line)
        LOGGER.warning("save.damaged", why=line)

    def _ranked(self) -> list[int]:
        """Steps that were evaluated and of which there is a save, the best first."""
        there = saves.saved_steps(self.path)
        lines = [line for line in self._read_evaluations() if line["name"] == "validation"]
        lines.sort(key=lambda line: (match_of(line), line["step"]), reverse=True)
        return [line["step"] for line in lines if line["step"] in there]

    def _read_evaluations(self) -> list[dict[str, Any]]:
        return read_journal(self.path / "evaluations.jsonl")
