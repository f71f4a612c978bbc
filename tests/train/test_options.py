"""Every option of the loss, the optimizer, the adapter and the step reaches the weights, in a job and a scripted run.

Catches an option that is read nowhere: three steps with it changed leave the very same weights.
"""

import math
import random
from collections.abc import Callable
from dataclasses import fields, replace
from pathlib import Path
from typing import Any

import pytest
import tiny_policy
import torch
from forked_group import WORTH, episode
from scripted import SCRIPT
from tiny_models import tiny_llama
from toy_tasks import ToyTasks

from octopus.core.errors import BackendUnavailable
from octopus.models.backbone import Backbone
from octopus.models.recomputing import recompute_layers
from octopus.rollout.environment import Task
from octopus.rollout.records import RolloutRecord
from octopus.rollout.scripted import play_script
from octopus.train import preparing, stages
from octopus.train.config import (
    AdapterConfig,
    LossConfig,
    ModelConfig,
    OptimizerConfig,
    RunConfig,
    StepConfig,
    TrainConfig,
)
from octopus.train.counts import Counts
from octopus.train.job import Job
from octopus.train.job_config import (
    GrpoConfig,
    ImitationConfig,
    JobConfig,
    JobRunConfig,
    RolloutConfig,
    TaskConfig,
)
from octopus.train.optimizer import new_optimizer, trainable
from octopus.train.stages import Imitation
from octopus.train.step import StepResult, train_step
from octopus.train.trainer import Trainer

SECTIONS = {"loss": LossConfig, "optimizer": OptimizerConfig, "adapter": AdapterConfig, "step": StepConfig}
BASE = {
    "loss": LossConfig(clip_low=0.1, clip_high=0.1),
    "optimizer": OptimizerConfig(learning_rate=1e-3),
    "adapter": None,
    "step": StepConfig(max_grad_norm=10.0),
}
LORA = {"adapter": AdapterConfig(rank=2)}
FALLING = {"optimizer": OptimizerConfig(learning_rate=1e-3, schedule="linear")}
DECAYING = {"optimizer": OptimizerConfig(learning_rate=1e-3, weight_decay=0.1)}
TRUNCATED = {"loss": LossConfig(anchor="trainer")}
PER_LENGTH = {"loss": LossConfig(name="dr_grpo")}
CHANGES: list[tuple[str, str, Any, dict[str, Any]]] = [
    *(("loss", "name", name, {}) for name in ("grpo", "dr_grpo", "gspo", "cispo", "likelihood")),
    ("loss", "clip_low", 0.3, {}),
    ("loss", "clip_high", 0.3, {}),
    ("loss", "sequence_tokens", 1, PER_LENGTH),
    ("loss", "anchor", "trainer", {}),
    ("loss", "importance_cap", 1.05, TRUNCATED),
    ("loss", "kl_weight", 0.5, {}),
    ("loss", "entropy_weight", 0.5, {}),
    ("loss", "divide_by_deviation", True, {}),
    ("optimizer", "learning_rate", 2e-3, {}),
    ("optimizer", "schedule", "linear", {}),
    ("optimizer", "schedule", "cosine", {}),
    ("optimizer", "warmup_steps", 2, {}),
    ("optimizer", "final_share", 0.5, FALLING),
    ("optimizer", "beta1", 0.5, {}),
    ("optimizer", "beta2", 0.5, {}),
    ("optimizer", "epsilon", 1e-2, {}),
    ("optimizer", "weight_decay", 0.1, {}),
    ("optimizer", "decay_embeddings", False, DECAYING),
    ("adapter", "rank", 3, LORA),
    ("adapter", "alpha", 64, LORA),
    ("adapter", "targets", ("q_proj",), LORA),
    ("step", "max_grad_norm", 1e-3, {}),
]
ELSEWHERE = {("step", "backend"), ("step", "logit_rows"), ("step", "recompute"), ("optimizer", "moments")}
"""Options that must not change a number, whose tests are below; and moments, which test_eight_bit.py is about."""
Weights = dict[str, torch.Tensor]


class Recorded:
    """Three rollouts of each task that were played before, with log-probabilities as an untrained policy has them.

    Those of the first task have these rewards, those of all others are worth 1.
    """

    tool_seconds = (0.0, 0.0)
    weights_version = 0

    def __init__(self, *rewards: float) -> None:
        self.rewards = rewards

    def run(self, tasks: list[Task]) -> list[tuple[RolloutRecord, ...]]:
        modes = ("octopus", "text", "single")
        first, *others = tasks
        return [
            tuple(self.record(task, mode, reward) for mode, reward in zip(modes, rewards, strict=True))
            for task, rewards in [(first, self.rewards), *((other, (1.0, 1.0, 1.0)) for other in others)]
        ]

    def record(self, task: Task, mode: str, reward: float) -> RolloutRecord:
        record = play_script(mode, task.environment, tiny_policy.codec(), mode)
        rng = random.Random(mode)
        uniform = -math.log(tiny_policy.codec().vocabulary)
        sampled = tuple(
            replace(token, log_probability=uniform + rng.uniform(-0.5, 0.5)) for token in record.episode.sampled
        )
        return replace(record, episode=replace(record.episode, sampled=sampled, reward=reward))


def new_job(sections: dict[str, Any], folder: Path, *rewards: float, questions: int = 1) -> Job:
    """A job that reinforces on recorded rollouts."""
    config = JobConfig(
        kind="job",
        run=JobRunConfig(folder=str(folder)),
        task=TaskConfig(parts=(2,)),
        rollout=RolloutConfig(pages=8, state_slots=8),
        grpo=GrpoConfig(
            steps=3,
            questions=questions,
            rollouts=3,
            updates=2,
            loss=sections["loss"],
            optimizer=sections["optimizer"],
        ),
        step=sections["step"],
        adapter=sections["adapter"],
    )
    torch.manual_seed(0)
    model = tiny_policy.model()
    run = Job(config, model=model, codec=tiny_policy.codec(), tasks=ToyTasks(config), report=lambda _: None)
    run._reinforcement._rollouts = Recorded(*rewards)  # type: ignore[assignment]
    return run


def weights(model: torch.nn.Module) -> Weights:
    """As they are now."""
    return {name: parameter.detach().clone() for name, parameter in trainable(model).items()}


def job(sections: dict[str, Any], folder: Path, *rewards: float) -> Weights:
    """Three steps of a job."""
    run = new_job(sections, folder, *(rewards or (1.0, 0.5, 0.0)))
    for number in (1, 2, 3):
        assert run._reinforcement.step(number, run._optimizer).figures["updated"]
    return weights(run._engine.backbone.model)


def scripted(sections: dict[str, Any], folder: Path) -> Weights:
    """Three steps on given episodes with recorded log-probabilities."""
    config = TrainConfig(
        run=RunConfig(folder=str(folder), steps=3), model=ModelConfig(name="given"), task=SCRIPT, **sections
    )
    torch.manual_seed(0)
    backbone = Backbone(tiny_llama(dtype=torch.float32))
    group = [replace(episode(number), reward=WORTH[number]) for number in range(3)]
    Trainer(config, backbone=backbone, groups=[group], report=lambda _: None).run()
    return weights(backbone.model)


RUNS: dict[str, Callable[[dict[str, Any], Path], Weights]] = {"job": job, "scripted": scripted}


def differs(one: Weights, other: Weights) -> bool:
    return one.keys() != other.keys() or any(not torch.equal(one[name], other[name]) for name in one)


@pytest.fixture(scope="module")
def unchanged(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str, dict[str, Any]], Weights]:
    """The weights after a run without the change; runs with the same sections are run once."""
    known: dict[str, Weights] = {}

    def get(run: str, base: dict[str, Any]) -> Weights:
        key = f"{run} {base}"
        if key not in known:
            known[key] = RUNS[run](BASE | base, tmp_path_factory.mktemp("base") / "run")
        return known[key]

    return get


def test_every_option_is_here() -> None:
    options = {(section, entry.name) for section, kind in SECTIONS.items() for entry in fields(kind)}
    assert options == {(section, name) for section, name, _, _ in CHANGES} | ELSEWHERE


@pytest.mark.parametrize("run", RUNS)
@pytest.mark.parametrize(("section", "name", "value", "base"), CHANGES, ids=lambda value: str(value)[:24])
def test_a_changed_option_changes_the_weights(
    run: str, section: str, name: str, value: Any, base: dict[str, Any], unchanged: Any, tmp_path: Path
) -> None:
    before = (BASE | base)[section]
    assert getattr(before, name) != value
    changed = BASE | base | {section: replace(before, **{name: value})}
    assert differs(RUNS[run](changed, tmp_path / "run"), unchanged(run, base))


@pytest.mark.parametrize("run", RUNS)
def test_the_same_options_give_the_same_weights(run: str, unchanged: Any, tmp_path: Path) -> None:
    """Else the test above would say nothing."""
    assert not differs(RUNS[run](BASE, tmp_path / "run"), unchanged(run, {}))


@pytest.mark.parametrize("run", RUNS)
def test_a_section_for_an_adapter_makes_one(run: str, unchanged: Any) -> None:
    assert all(".lora_" in name for name in unchanged(run, LORA))


def test_imitation_follows_a_schedule_of_its_own(tmp_path: Path) -> None:
    run = new_job(BASE, tmp_path / "run", 1.0, 0.5, 0.0)
    config = replace(run.config, imitation=ImitationConfig(steps=2, episodes=1, **FALLING))
    backbone = run._engine.backbone
    stage = Imitation(config, backbone=backbone, codec=tiny_policy.codec(), tasks=ToyTasks(config))
    optimizer = new_optimizer(backbone.model, stage.optimizer)
    rates = []
    for number in (1, 2):
        stage.step(number, optimizer)
        rates.append(optimizer.param_groups[0]["lr"])
    assert rates == [1e-3, 5e-4]


@pytest.mark.parametrize("run", RUNS)
def test_the_backend_is_the_one_that_was_asked_for(run: str, tmp_path: Path) -> None:
    with pytest.raises(BackendUnavailable, match="none such"):
        RUNS[run](BASE | {"step": StepConfig(backend="none such")}, tmp_path / "run")


@pytest.mark.parametrize("run", RUNS)
def test_no_more_rows_of_logits_than_asked_for(
    run: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    rows: list[int] = []
    logits = Backbone.logits

    def counting(self: Backbone, hidden_NC: torch.Tensor) -> torch.Tensor:
        rows.append(len(hidden_NC))
        return logits(self, hidden_NC)

    monkeypatch.setattr(Backbone, "logits", counting)
    RUNS[run](BASE | {"step": StepConfig(logit_rows=5)}, tmp_path / "run")
    assert max(rows) == 5


@pytest.mark.parametrize("run", RUNS)
def test_recomputed_layers_change_no_weight(
    run: str, unchanged: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Catches: an option that nobody reads; layers that are made again from other values."""
    wrapped: list[torch.nn.Module] = []
    monkeypatch.setattr(preparing, "recompute_layers", lambda model: (wrapped.append(model), recompute_layers(model)))
    found = RUNS[run](BASE | {"step": replace(BASE["step"], recompute=True)}, tmp_path / "run")
    assert wrapped and not differs(found, unchanged(run, {}))


@pytest.mark.parametrize(
    ("settings", "moves"), [({}, False), ({"kl_weight": 0.5}, True), ({"entropy_weight": 0.5}, True)]
)
def test_a_group_with_equal_rewards_moves_the_policy_through_regularisers_alone(
    settings: dict[str, float], moves: bool, tmp_path: Path
) -> None:
    """All its tokens count for KL and entropy. For the policy term they count in the denominator and nowhere else."""
    run = new_job(BASE | {"loss": LossConfig(**settings)}, tmp_path / "run", 1.0, 1.0, 1.0)
    model = run._engine.backbone.model
    with torch.no_grad():
        model.get_input_embeddings().weight.mul_(1.5)  # away from the reference
    before = weights(model)
    figures = run._reinforcement.step(1, run._optimizer).figures
    assert differs(weights(model), before) == moves
    assert (figures["loss_terms"] > 0) == moves
    assert (figures["kl"] > 0) == ("kl_weight" in settings)


def test_a_group_with_equal_rewards_thins_out_the_others(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its tokens are not packed and count in the denominators all the same."""
    counts: list[Counts] = []

    def watched(*arguments: Any, silent: Counts, **settings: Any) -> StepResult:
        counts.append(silent)
        return train_step(*arguments, silent=silent, **settings)

    monkeypatch.setattr(stages, "train_step", watched)
    run = new_job(BASE, tmp_path / "run", 1.0, 0.5, 0.0, questions=2)
    done = run._reinforcement.step(1, run._optimizer)
    assert 0 < done.figures["loss_terms"] < done.figures["sampled_tokens"]
    assert counts[0].terms == done.figures["sampled_tokens"] - done.figures["loss_terms"]
    threads = sum(len({token.thread for token in record.episode.sampled}) for record in done.records)
    assert 3 <= counts[0].sequences < threads
