"""A job from beginning to end: imitation, reinforcement, evaluation on the way, saves, resume, the final table.

Everything that a step does is a function of the configuration, the step's number and the weights, so a run that is
killed and resumed repeats what it lost: journals are cut back to the save, and rollouts are keyed by seeds.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from structlog.contextvars import bound_contextvars
from transformers import PreTrainedModel, set_seed

from octopus.core.errors import Stopped
from octopus.core.trace import Trace
from octopus.retrieval.questions import Split
from octopus.rollout.cancelling import Cancelling
from octopus.rollout.dialect import Dialect
from octopus.rollout.logs import new_logger
from octopus.rollout.spans import NO_SPANS, Spans
from octopus.train import saves
from octopus.train.credit.crediting import Crediting
from octopus.train.data.tasks import tasks_of
from octopus.train.evaluate import evaluate
from octopus.train.job_config import JobConfig
from octopus.train.optimizer import new_optimizer
from octopus.train.parallel.ranks import ALONE, Ranks, joined
from octopus.train.parallel.sharding import shard, whole
from octopus.train.parallel.shared_rollouts import SharedRollouts
from octopus.train.players import new_engine, new_rollouts
from octopus.train.policy import save_policy
from octopus.train.preparing import prepare
from octopus.train.progress import Progress
from octopus.train.reference import new_reference
from octopus.train.report import final_table, speed
from octopus.train.run_folder import Events, RunFolder
from octopus.train.run_log import RunLog, log_evaluation, log_step
from octopus.train.speaker import load_speaker
from octopus.train.stages import Imitation, Reinforcement, Stage
from octopus.train.stopping import Abandoned, Stopping
from octopus.train.tasks import Tasks
from octopus.train.watching import NOBODY, Phase, Watch

LOGGER = new_logger(__name__)

Report = Callable[[str], None]


class Job:
    """One run of a configuration on a policy."""

    def __init__(
        self,
        config: JobConfig,
        *,
        model: PreTrainedModel,
        codec: Dialect,
        tasks: Tasks,
        report: Report = print,
        stopping: Stopping | None = None,
        ranks: Ranks = ALONE,
        watch: Watch = NOBODY,
        spans: Spans = NO_SPANS,
    ) -> None:
        """Prepares a run.

        Args:
            config: The run. Its model section is not read: the policy is given.
            model: With its first weights, not those of a save.
            codec: The model's.
            tasks: What is asked.
            report: Receives one line of progress at a time.
            stopping: Asks it to save and leave; if there is none, nobody does.
            ranks: Those who run it together; each is given the same policy and tasks.
            watch: Is told what the run is at.
            spans: Get what takes how long.

        Raises:
            OctopusError: The run's folder holds saves and the configuration does not say `resume`, or none is whole.
            ConfigError: It holds saves of another run, or a logger's library is missing.
        """
        self.config = config
        self._folder = RunFolder(config, report=report)
        self._report = report
        self._stopping = stopping or Stopping(limit_s=config.run.stop_seconds)
        self._ranks = ranks
        self._watch = watch
        self._spans = spans
        self._last = config.imitation.steps + config.grpo.steps
        self._codec = codec
        self._trace, self._cancelling = Trace(), Cancelling()
        self._events: Events = ()
        prepare(model, adapter=config.adapter, step=config.step)
        self._engine = engine = new_engine(model, codec, config.rollout, trace=self._trace)
        watch.rollouts(engine.graph, self._cancelling)
        self._tasks = tasks
        self._greedy = self._rollouts(0.0)
        self._imitation = Imitation(
            config, backbone=engine.backbone, codec=codec, tasks=tasks, ranks=ranks, spans=spans
        )
        self._reinforcement = self._new_reinforcement(model)
        shard(engine.backbone.model, ranks)
        self._optimizer = new_optimizer(engine.backbone.model, self._stage(1)[0].optimizer)
        self.step = 0
        if self._folder.save_to_resume is not None:
            self.step = self._load(self._folder.save_to_resume)
            report(f"resumed from {self._folder.save_to_resume.path}")
            LOGGER.info("run.resumed", step=self.step)
        self._generators = saves.generators()
        self._folder.begin()

    def run(self) -> str:
        """Runs what is left; returns the final table.

        Raises:
            Stopped: It was asked to, and has saved.
        """
        try:
            self._train()
            return self._finish()
        except Abandoned:
            raise self._leave() from None
        finally:
            self._folder.close()

    # ---- inner workings ----

    def _train(self) -> None:
        progress = Progress(self._report)
        self._milestone()
        while self.step < self._last:
            self._heed()
            if self._stopping.asked:
                raise Abandoned
            with bound_contextvars(step=self.step + 1):
                self._take_step(progress)
            self._milestone()

    def _heed(self) -> None:
        """Saves if that is asked for, and waits as long as the run is to pause."""
        self._watch.phase("training")
        while self._watch.between_steps(lambda: self._stopping.asked):
            self._save()
            self._watch.phase("training")

    def _take_step(self, progress: Progress) -> None:
        """Takes the next step. If it is abandoned, all that a save holds is as it was."""
        stage, number, of = self._stage(self.step + 1)
        optimizer = new_optimizer(self._engine.backbone.model, stage.optimizer) if number == 1 else self._optimizer
        progress.begin(stage.name, number, of)
        self._trace.events.clear()
        with self._stopping.abandonable(optimizer), self._spans.span("step", stage=stage.name, step=self.step + 1):
            done = stage.step(number, optimizer)
        self.step += 1
        self._optimizer = optimizer
        self._generators = saves.generators()
        self._events = self._trace.events[: self.config.run.trace_events]
        self._engine.advance_weights()
        figures = {"stage": stage.name} | done.figures
        self._folder.write_step(self.step, figures, done.records)
        self._watch.step(self.step, self._last, figures)
        progress.end(done.figures)
        log_step(self.step, self._last, figures)

    def _new_reinforcement(self, model: PreTrainedModel) -> Reinforcement:
        config, backbone, codec = self.config, self._engine.backbone, self._codec
        crediting = Crediting(
            config, backbone=backbone, dialect=codec, new_engine=lambda: new_engine(model, codec, config.rollout)
        )
        return Reinforcement(
            config,
            backbone=backbone,
            rollouts=self._rollouts(config.rollout.temperature),
            tasks=self._tasks,
            crediting=crediting,
            reference=new_reference(backbone) if config.grpo.loss.kl_weight else None,
            ranks=self._ranks,
            spans=self._spans,
        )

    def _rollouts(self, temperature: float) -> SharedRollouts:
        config, engine = self.config.rollout, self._engine
        rollouts = new_rollouts(
            engine, self._codec, config, temperature=temperature, spans=self._spans, cancelling=self._cancelling
        )
        return SharedRollouts(rollouts, engine, self._ranks)

    def _stage(self, step: int) -> tuple[Stage, int, int]:
        """The stage of a step, from 1, the step's number in it, from 1, and its number of steps."""
        imitation = self.config.imitation.steps
        if step <= imitation:
            return self._imitation, step, imitation
        return self._reinforcement, step - imitation, self.config.grpo.steps

    def _milestone(self) -> None:
        """Saves and evaluates, if either is due after this step.

        The save comes first, so that nothing is lost while it evaluates. A resume evaluates what it goes on from again.
        """
        number = self.step - self.config.imitation.steps
        evaluates = number >= 0 and (number % self.config.evaluation.every_steps == 0 or self.step == self._last)
        if evaluates or self.step % self.config.run.save_every_steps == 0:
            self._save()
        if number == 0:
            self._evaluate("before", "test", weights_step=self.step)
        if evaluates:
            self._evaluate("validation", "validation", weights_step=self.step)
        self._folder.prune()

    def _evaluate(self, name: str, split: Split, *, weights_step: int) -> None:
        self._watch.phase("evaluating")
        with self._stopping.abandonable(), self._spans.span("evaluation", step=weights_step):
            result = evaluate(self._greedy, self._tasks.held_out(split))
        step = self.step + (name == "after")  # In the journal it comes after everything else.
        self._folder.write_evaluation(step, name, result, weights_step=weights_step)
        self._report(
            f"evaluation {name}: {result.exact_match:.3f} of {len(result.correct)} {split} questions exactly right "
            f"({result.seconds:.1f} s)"
        )
        log_evaluation(name, result, weights_step=weights_step)

    def _save(self, phase: Phase = "saving") -> None:
        self._watch.phase(phase)
        with self._spans.span("save", step=self.step):
            written = self._folder.save(
                self.step,
                model=self._engine.backbone.model,
                optimizer=self._optimizer,
                generators=self._generators,
                events=self._events,
            )
        if written:
            self._watch.saved(self.step)
            LOGGER.info("save.written", step=self.step)

    def _load(self, save: saves.Save) -> int:
        """Restores a save, with the optimizer of the stage that it was made in, and returns its step."""
        stage, _, _ = self._stage(max(1, save.step))
        model = self._engine.backbone.model
        self._optimizer = new_optimizer(model, stage.optimizer)
        step = self._folder.load(save, model=model, optimizer=self._optimizer)
        self._engine.advance_weights()
        return step

    def _leave(self) -> Stopped:
        """Saves the last step that was finished, if it is not saved yet."""
        LOGGER.info("run.stopping", step=self.step)
        self._save("stopping")
        name = saves.path_of(self._folder.path, self.step).name
        return self._stopping.stopped(
            f"after step {self.step} of {self._last}; {name} holds it, run.resume=true goes on from there"
        )

    def _finish(self) -> str:
        """Evaluates the best save on test questions and leaves its policy."""
        self._evaluate("after", "test", weights_step=self._load(self._folder.best()))
        with whole(self._engine.backbone.model):
            if self._ranks.first:
                save_policy(self._folder.best_policy, self._engine.backbone.model, self._codec)
        self._folder.draw()
        table = final_table(self._folder.path)
        self._report(f"\n{table}\n{speed(self._folder.path)}")
        return table


def run_job(
    config: JobConfig, *, report: Report = print, watch: Watch = NOBODY, spans: Spans = NO_SPANS
) -> str:
    """Loads the policy, runs the whole job and returns its final table; `watch` and `spans` are told what it is at.

    Under torchrun all its processes run it together.

    Raises:
        Stopped: By a signal.
        ConfigError: torchrun has started more processes than there are devices.
    """
    stopping = Stopping(limit_s=config.run.stop_seconds)
    with joined(config.model.device) as ranks, stopping.signals(), RunLog(config.run.folder, ranks):
        set_seed(config.run.seed)
        model, codec = load_speaker(replace(config.model, device=str(ranks.device)))
        return Job(
            config,
            model=model,
            codec=codec,
            tasks=tasks_of(config),
            report=report if ranks.first else _silence,
            stopping=stopping,
            ranks=ranks,
            watch=watch,
            spans=spans,
        ).run()


def _silence(_: str) -> None:
    """The first rank reports for all."""
