"""A whole job from random weights within a minute on one core, and one that is killed at random moments.

Catches: a stage that does not learn; rollouts whose log-probabilities are not the trainer's; an evaluation, table,
curve or policy that is not written; a save that is kept although it is neither best nor newest; an optimizer that is
carried from one stage into the next; a run that is not the same after a kill (optimizer of the wrong stage, steps
trained twice, journal lines lost or doubled, other rollouts).
"""

import json
import multiprocessing
import random
import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tiny_policy
import torch
from safetensors.torch import load_file
from toy_tasks import ToyTasks
from transformers import set_seed

from octopus import cli
from octopus.core.errors import ConfigError, OctopusError
from octopus.rollout.environment import Environment, Task
from octopus.rollout.records import RolloutRecord
from octopus.train.config import OptimizerConfig
from octopus.train.job import Job
from octopus.train.job_config import (
    CreditConfig,
    EvaluationConfig,
    GrpoConfig,
    ImitationConfig,
    JobConfig,
    JobRunConfig,
    PackingConfig,
    RolloutConfig,
    TaskConfig,
)
from octopus.train.journal import read_journal
from octopus.train.policy import load_policy
from octopus.train.report import final_table
from octopus.train.watching import Nobody, Phase


def config(folder: Path, *, imitation: int, grpo: int, rate: float = 1e-2, **run: Any) -> JobConfig:
    return JobConfig(
        kind="job",
        run=JobRunConfig(folder=str(folder), save_every_steps=3, **run),
        task=TaskConfig(parts=(1, 2)),
        rollout=RolloutConfig(turn_tokens=16, turns=4, pages=1024, state_slots=512, episodes=24),
        imitation=ImitationConfig(steps=imitation, episodes=8, optimizer=OptimizerConfig(learning_rate=rate)),
        grpo=GrpoConfig(
            steps=grpo,
            questions=4,
            rollouts=6,
            updates=2,
            optimizer=OptimizerConfig(learning_rate=3e-4),
            credit=CreditConfig(method="rescore", regenerate_share=0.5),
        ),
        evaluation=EvaluationConfig(every_steps=2, validation_questions=12, test_questions=16),
        packing=PackingConfig(budget_tokens=1_000),
    )


@pytest.fixture(scope="module")
def done(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, list[str]]:
    """The folder of a finished job that began with random weights, and its lines of progress."""
    folder = tmp_path_factory.mktemp("job") / "run"
    settings = config(folder, imitation=50, grpo=4)
    lines: list[str] = []
    model, codec = tiny_policy.model(), tiny_policy.codec()
    Job(settings, model=model, codec=codec, tasks=ToyTasks(settings), report=lines.append).run()
    return folder, lines


def test_every_stage_learns(done: tuple[Path, list[str]]) -> None:
    metrics = read_journal(done[0] / "metrics.jsonl")
    assert [line["step"] for line in metrics] == list(range(1, 55))
    imitation = [line["loss"] for line in metrics if line["stage"] == "imitation"]
    assert imitation[0] > 7 and imitation[-1] < 1  # the first is that of guessing among 2,048 tokens
    grpo = [line for line in metrics if line["stage"] == "grpo"]
    assert all(line["updated"] and line["grad_norm"] > 0 for line in grpo)
    assert any(0 < line["reward"] < 1 for line in grpo)
    assert any(line["branch_term"] for line in grpo)
    assert all(sum(line["branch_term_histogram"]) + line["branch_terms_undefined"] == line["branches"] for line in grpo)
    assert all(0 < line["regenerated_branches"] < line["branches"] for line in grpo)
    assert all("regenerated_rank_correlation" in line for line in grpo)  # None: answers are known by heart here
    assert all(line["primitives"]["read_thread"] > 0 for line in grpo)
    assert all(line["pages_copied"] > line["pages_held"] > 0 for line in grpo)


def test_each_stage_begins_with_an_optimizer_of_its_own(done: tuple[Path, list[str]]) -> None:
    save = done[0] / "step-000054"
    assert json.loads((save / "optimizer.json").read_text())["groups"][0]["options"]["lr"] == 3e-4
    state = load_file(save / "optimizer.safetensors")
    assert {value.item() for name, value in state.items() if name.startswith("step/")} == {4 * 2}


def test_rollouts_have_the_log_probabilities_of_the_trainer(done: tuple[Path, list[str]]) -> None:
    grpo = [line for line in read_journal(done[0] / "metrics.jsonl") if line["stage"] == "grpo"]
    assert max(line["log_ratio_max"] for line in grpo) < 1e-5
    assert all(0 <= line["mismatch_kl"] < 1e-10 for line in grpo)
    assert all(line["policy_lag"] == 0 and line["tool_seconds"].keys() == {"ok", "failed"} for line in grpo)


def test_evaluations_frame_the_run_and_the_best_save_is_kept(done: tuple[Path, list[str]]) -> None:
    folder, lines = done
    evaluations = read_journal(folder / "evaluations.jsonl")
    assert [(line["name"], line["step"]) for line in evaluations] == [
        ("before", 50), ("validation", 50), ("validation", 52), ("validation", 54), ("after", 55),
    ]  # fmt: skip
    scores = {line["step"]: sum(line["correct"]) for line in evaluations if line["name"] == "validation"}
    best = max(scores, key=lambda step: (scores[step], step))
    assert evaluations[-1]["weights_step"] == best
    assert {path.name for path in folder.glob("step-*")} == {f"step-{best:06d}", "step-000054"}
    assert (folder / "latest").read_text() == "step-000054\n"
    assert any(line.startswith("grpo 4/4   reward 0.") and line.endswith(" s, 0 s left") for line in lines)
    model, codec = load_policy(folder / "best", dtype=torch.float32, device="cpu")
    assert codec.tokenizer.to_str() == tiny_policy.codec().tokenizer.to_str()
    saved = load_file(folder / f"step-{best:06d}" / "model.safetensors")
    assert all(torch.equal(model.state_dict()[name], tensor) for name, tensor in saved.items())


def test_episodes_trace_and_curve_are_written(done: tuple[Path, list[str]]) -> None:
    folder, _ = done
    episodes = read_journal(folder / "episodes.jsonl")
    assert len(episodes) == 50 * 8 + 4 * 24
    assert all(len(token) == 4 for episode in episodes for token in episode["sampled"])
    header, *events = map(json.loads, (folder / "trace.jsonl").read_text().splitlines())
    assert header["events"] == len(events) > 0
    assert (folder / "reward.svg").read_text().count("<circle") == 3


def test_the_table_is_printed_again(done: tuple[Path, list[str]], capsys: pytest.CaptureFixture[str]) -> None:
    folder, lines = done
    assert cli.main(["report", str(folder)]) == 0
    printed = capsys.readouterr().out
    assert printed.startswith(final_table(folder))
    assert final_table(folder) in lines[-1]
    for words in ("exact match, greedy, 16 test questions", "2 parts (8)", "packing ratio", "KV pages", "speed: "):
        assert words in printed


def figures(folder: Path, name: str) -> list[dict[str, Any]]:
    """The lines of a journal without what a clock said."""
    return [
        {key: value for key, value in line.items() if not key.endswith("_seconds")}
        for line in read_journal(folder / name)
    ]


@pytest.mark.parametrize("kills", [2, pytest.param(10, marks=pytest.mark.slow)])
def test_a_killed_run_ends_like_one_that_was_not(kills: int, done: tuple[Path, list[str]], tmp_path: Path) -> None:
    def run(folder: Path, *, resume: bool = False) -> str:
        set_seed(0)
        settings = config(folder, imitation=2, grpo=4, rate=1e-4, resume=resume)
        model, codec = load_policy(done[0] / "best", dtype=torch.float32, device="cpu")
        return Job(settings, model=model, codec=codec, tasks=ToyTasks(settings), report=lambda _: None).run()

    straight, killed = tmp_path / "straight", tmp_path / "killed"
    started = time.monotonic()
    table = run(straight)
    whole_s = time.monotonic() - started
    rewards = [line["reward"] for line in read_journal(straight / "metrics.jsonl") if line["stage"] == "grpo"]
    assert any(0 < reward < 1 for reward in rewards)  # there is something to be different
    moments = [random.uniform(0.1, 1) for _ in range(kills)]  # another one each time: every moment must do
    for moment in moments:
        child = multiprocessing.get_context("fork").Process(target=run, args=(killed,), kwargs={"resume": True})
        child.start()
        child.join(moment * whole_s)
        child.kill()
        child.join()
    assert run(killed, resume=True) == table, f"killed after {moments} of {whole_s} s"
    for name in ("metrics.jsonl", "episodes.jsonl", "evaluations.jsonl"):
        assert figures(killed, name) == figures(straight, name), f"killed after {moments} of {whole_s} s"
    names = {path.relative_to(straight) for path in straight.glob("step-*/*")}
    assert names == {path.relative_to(killed) for path in killed.glob("step-*/*")}
    for name in (*names, Path("best") / "model.safetensors"):
        assert (killed / name).read_bytes() == (straight / name).read_bytes(), f"{name}, killed after {moments}"


class Lottery(ToyTasks):
    """Rewards are drawn from the generators of the process, as a user's reward function may."""

    def training(self, step: int) -> list[Task]:
        return [replace(task, judge=self) for task in super().training(step)]

    def judge(self, environments: Sequence[Environment], records: Sequence[RolloutRecord]) -> list[RolloutRecord]:
        drawn = [random.random() + np.random.random() + torch.rand(()).item() for _ in records]  # noqa: NPY002
        return [
            replace(record, episode=replace(record.episode, reward=reward))
            for record, reward in zip(records, drawn, strict=True)
        ]


def test_what_rewards_draw_is_drawn_again_after_a_resume(tmp_path: Path) -> None:
    """Row 53 of public bugs. Catches: generators that are seeded again after a resume, or saved as they once were."""

    def run(folder: Path, *, seed: int, steps: int, resume: bool = False) -> None:
        small = config(folder, imitation=0, grpo=steps, resume=resume)
        evaluation = replace(small.evaluation, validation_questions=1, test_questions=1)
        settings = replace(small, grpo=replace(small.grpo, credit=CreditConfig()), evaluation=evaluation)
        model, codec = tiny_policy.model(), tiny_policy.codec()
        set_seed(seed)
        Job(settings, model=model, codec=codec, tasks=Lottery(settings), report=lambda _: None).run()

    straight, stopped = tmp_path / "straight", tmp_path / "stopped"
    run(straight, seed=1, steps=3)
    run(stopped, seed=1, steps=2)
    run(stopped, seed=2, steps=3, resume=True)
    rewards = [[line["reward"] for line in read_journal(one / "metrics.jsonl")] for one in (straight, stopped)]
    assert rewards[0] == rewards[1] and len(set(rewards[0])) == 3
    for path in (straight / "step-000003").iterdir():
        assert path.read_bytes() == (stopped / "step-000003" / path.name).read_bytes(), path.name


def test_a_run_that_made_it_worse_leaves_what_it_began_with(done: tuple[Path, list[str]], tmp_path: Path) -> None:
    settings = config(tmp_path / "run", imitation=0, grpo=1)
    ruinous = replace(settings.grpo, questions=2, optimizer=OptimizerConfig(learning_rate=1.0))
    settings = replace(settings, grpo=ruinous)
    model, codec = load_policy(done[0] / "best", dtype=torch.float32, device="cpu")
    begun = {name: parameter.detach().clone() for name, parameter in model.named_parameters()}
    Job(settings, model=model, codec=codec, tasks=ToyTasks(settings), report=lambda _: None).run()
    evaluations = read_journal(tmp_path / "run" / "evaluations.jsonl")
    before, first, last, after = (sum(line["correct"]) for line in evaluations)
    assert last < first and after == before
    assert evaluations[-1]["weights_step"] == 0
    kept = load_file(tmp_path / "run" / "best" / "model.safetensors")
    assert all(torch.equal(kept[name], tensor) for name, tensor in begun.items())


def test_a_used_folder_and_another_configuration_are_refused(done: tuple[Path, list[str]]) -> None:
    folder, _ = done
    before = sorted(path.name for path in folder.iterdir())

    def start(settings: JobConfig) -> None:
        model, codec = tiny_policy.model(), tiny_policy.codec()
        Job(settings, model=model, codec=codec, tasks=ToyTasks(settings), report=lambda _: None)

    with pytest.raises(OctopusError, match=r"holds saves up to step-000054; set run\.resume=true to go on"):
        start(config(folder, imitation=50, grpo=4))
    with pytest.raises(ConfigError, match="step-000054 is a save of another configuration"):
        start(config(folder, imitation=49, grpo=4, resume=True))
    assert sorted(path.name for path in folder.iterdir()) == before


class Asking(Nobody):
    """Notes what the run says it is at wherever it may pause, and asks for a save there once."""

    def __init__(self) -> None:
        self.at, self.told, self.asked = "starting", [], False

    def phase(self, phase: Phase) -> None:
        self.at = phase

    def between_steps(self, stopping: Callable[[], bool]) -> bool:
        self.told.append(self.at)
        self.asked = not self.asked
        return self.asked


def test_a_run_that_pauses_is_training(tmp_path: Path) -> None:
    """Catches: a run that says that it saves, or evaluates, as long as it pauses behind that."""
    settings, watch = config(tmp_path / "run", imitation=4, grpo=1), Asking()
    model, codec = tiny_policy.model(), tiny_policy.codec()
    job = Job(settings, model=model, codec=codec, tasks=ToyTasks(settings), report=lambda _: None, watch=watch)
    job.run()
    assert watch.told == ["training"] * 10
