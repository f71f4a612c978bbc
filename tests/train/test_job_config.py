"""The configuration of a job: checked like every other, written as it was read.

Catches: a job file taken for one of scripted episodes; a misspelt key or a wrong bound that is let through; a copy in
the run folder that does not read back; a resume of something else that is let through, or of the same that is refused.
"""

from pathlib import Path

import pytest
from scripted import EXAMPLE as SPINE

from octopus import cli
from octopus.core.errors import ConfigError
from octopus.train.config import describe, read_table
from octopus.train.job_config import is_job, load_job, same_run
from octopus.train.schema import toml

EXAMPLE = SPINE.parent / "job.toml"


def test_a_file_says_that_it_is_a_job() -> None:
    assert is_job(read_table(EXAMPLE)[0])
    assert not is_job(read_table(SPINE)[0])


@pytest.mark.parametrize(
    ("override", "expected"),
    [
        ("grpo.step=3", "grpo.step: unknown key; did you mean 'steps'?"),
        ("grop.steps=3", "grop: unknown key; did you mean 'grpo'?"),
        ("grpo.optimizer.learning_rat=1", "grpo.optimizer.learning_rat: unknown key; did you mean 'learning_rate'?"),
        ("kind=jobs", "kind: expected one of 'job', came 'jobs'"),
        ("rollout.mode=octopos", "rollout.mode: expected one of 'octopus', 'text', 'single', came 'octopos'"),
        ("task.parts=[1,5]", "task.parts[1]: expected a whole number at least 1 and at most 4, came 5"),
        ("task.parts=[]", "task.parts: expected at least one number of parts, came an empty list"),
        ("grpo.branch_weight=-1", "grpo.branch_weight: expected a number at least 0.0, came -1"),
    ],
)
def test_a_wrong_override_is_refused_with_the_place(override: str, expected: str) -> None:
    with pytest.raises(ConfigError) as caught:
        load_job(EXAMPLE, overrides=[override])
    assert str(caught.value) == f"{EXAMPLE} with --set: {expected}"


def test_what_is_written_reads_back(tmp_path: Path) -> None:
    config = load_job(EXAMPLE, overrides=['run.folder="a \\"b\\" ü\\\\c"', "task.parts=[2]", "run.resume=true"])
    (tmp_path / "config.toml").write_text(toml(config))
    assert load_job(tmp_path / "config.toml") == config


def test_only_the_same_run_is_resumed() -> None:
    config = load_job(EXAMPLE)
    for override in ("run.resume=true", "run.folder=moved", "grpo.steps=99", "run.save_every_steps=3"):
        assert same_run(config, load_job(EXAMPLE, overrides=[override])), override
    for override in ("run.seed=1", "imitation.steps=9", "grpo.questions=9", "rollout.mode=text", "model.name=x"):
        assert not same_run(config, load_job(EXAMPLE, overrides=[override])), override


def test_a_dry_run_prints_the_whole_job(capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["train", str(EXAMPLE), "--dry-run", "--resume", "--set", "grpo.steps=7"]) == 0
    printed = capsys.readouterr().out
    assert printed.strip() == describe(load_job(EXAMPLE, overrides=["grpo.steps=7", "run.resume=true"]))
    assert "grpo.loss.clip_high = 0.28" in printed.splitlines()
