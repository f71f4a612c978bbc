"""A job on the real corpus from the command line, and what a command says when it cannot.

Catches: tasks that change from call to call or repeat seeds; imitation that shows real names; held-out questions that
depend on the run's seed; a command that ends in a traceback.
"""

import random
from pathlib import Path

import pytest
import tiny_policy
import torch

from octopus import cli
from octopus.retrieval.corpus import Corpus
from octopus.train import job
from octopus.train.job_config import GrpoConfig, ImitationConfig, JobConfig, JobRunConfig, TaskConfig
from octopus.train.journal import read_journal
from octopus.train.tasks import LibraryTasks

JOB = """
kind = "job"
run = {{ folder = "{folder}/run" }}
model = {{ name = "{folder}/policy" }}
imitation = {{ steps = 2, episodes = 4 }}
grpo = {{ steps = 1, questions = 2, rollouts = 2 }}
evaluation = {{ validation_questions = 2, test_questions = 3 }}
rollout = {{ turn_tokens = 8, turns = 2, pages = 256, state_slots = 64 }}
"""


def test_a_job_runs_from_the_command_line(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    tiny_policy.policy_folder(tmp_path / "policy")
    (tmp_path / "job.toml").write_text(JOB.format(folder=tmp_path))
    assert cli.main(["train", str(tmp_path / "job.toml")]) == 0
    printed = capsys.readouterr().out
    assert "imitation 2/2" in printed and "grpo 1/1" in printed and "exact match, greedy, 3 test questions" in printed
    assert [line["stage"] for line in read_journal(tmp_path / "run" / "metrics.jsonl")] == ["imitation"] * 2 + ["grpo"]
    for folder in ("run", "policy"):
        arguments = ["eval", str(tmp_path / folder), "--questions", "2", "--mode", "single", "--parts", "1"]
        assert cli.main(arguments) == 0
        assert "of 2" in capsys.readouterr().out.splitlines()[0]
    assert cli.main(["train", str(tmp_path / "job.toml")]) == 1
    assert "set run.resume=true to go on from there" in capsys.readouterr().err


def test_commands_without_a_job_or_a_policy_say_so(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["report", str(tmp_path)]) == 2
    assert capsys.readouterr().err == f"octopus: {tmp_path}/config.toml: cannot be read: No such file or directory\n"
    assert cli.main(["eval", str(tmp_path)]) == 2
    assert "expected the folder of a policy" in capsys.readouterr().err
    (tmp_path / "config.toml").write_text('kind = "job"\nrun = { folder = "x" }\ngrpo = { steps = 1 }\n')
    assert cli.main(["report", str(tmp_path)]) == 2
    assert capsys.readouterr().err == f"octopus: {tmp_path}: no finished job: its evaluation 'before' is missing\n"
    with pytest.raises(SystemExit) as caught:
        cli.main(["eval", str(tmp_path), "--questions", "0"])
    assert caught.value.code == 2
    assert "expected a whole number at least 1, came '0'" in capsys.readouterr().err


def tasks(seed: int = 0) -> LibraryTasks:
    run = JobRunConfig(folder="x", seed=seed)
    return LibraryTasks(
        JobConfig(kind="job", run=run, grpo=GrpoConfig(steps=9), imitation=ImitationConfig(steps=9, episodes=8))
    )


def test_tasks_are_a_function_of_the_step() -> None:
    first, again = tasks(), tasks()
    drawn = [task for step in (1, 2, 3) for task in first.training(step)]
    assert [(t.name, t.seeds) for t in again.training(2)] == [(t.name, t.seeds) for t in drawn[8:16]]
    seeds = [seed for task in drawn for seed in task.seeds]
    assert len(set(seeds)) == len(seeds) == 3 * 8 * 8
    assert not set(seeds) & {seed for task in tasks(seed=1).training(1) for seed in task.seeds}
    asked = [environment.question for environment in first.scripted(5)]
    assert asked == [environment.question for environment in again.scripted(5)]
    assert asked != [environment.question for environment in first.scripted(6)]


def test_every_question_is_asked_once_before_one_comes_again() -> None:
    """Row 41 of public bugs: 9 questions, 4 a step, 2 rollouts. Catches: a count of rollouts that is applied twice."""
    grpo = GrpoConfig(steps=9, questions=4, rollouts=2)
    config = JobConfig(kind="job", run=JobRunConfig(folder="x"), grpo=grpo, task=TaskConfig(train_questions=9))
    source = LibraryTasks(config)
    asked = [task for step in range(1, 10) for task in source.training(step)]
    names = [task.name.partition("/")[2] for task in asked]
    assert all(len(task.seeds) == 2 for task in asked)
    assert len(set(names[:9])) == 9 and names == names[:9] * 4


def test_held_out_questions_are_the_same_for_every_seed_and_about_no_training_document() -> None:
    first, other = tasks(), tasks(seed=1)
    for split in ("validation", "test"):
        assert [t.name for t in first.held_out(split)] == [t.name for t in other.held_out(split)]
    trained = {gold for step in range(1, 30) for task in first.training(step) for gold in task.environment.gold}
    assert not trained & {gold for task in first.held_out("test") for gold in task.environment.gold}


def test_imitation_shows_no_real_name() -> None:
    real = {document.name for document in Corpus.load()}
    shown = {name for one in tasks().scripted(1) for name in one.question.answer.split(", ")}
    assert len(shown) > 8 and not shown & real


def test_a_run_begins_with_its_seed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Catches: a seed that is read and not set, so that two runs of one configuration differ."""
    tiny_policy.policy_folder(tmp_path / "policy")
    (tmp_path / "job.toml").write_text(JOB.format(folder=tmp_path))
    drawn: list[tuple[float, float]] = []

    class Beginning:
        def __init__(self, config: JobConfig, **_: object) -> None:
            drawn.append((float(torch.rand(())), random.random()))

        def run(self) -> str:
            return ""

    monkeypatch.setattr(job, "Job", Beginning)
    for seed in (5, 5, 6):
        random.seed()
        assert cli.main(["train", str(tmp_path / "job.toml"), "--set", f"run.seed={seed}"]) == 0
    assert drawn[0] == drawn[1]
    assert all(one != other for one, other in zip(drawn[0], drawn[2], strict=True))
