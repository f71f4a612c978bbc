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
from octopus.train.job_config import is_job, job_digest, load_job, parse_job
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
        ("grpo.credit.weight=-1", "grpo.credit.weight: expected a number at least 0.0, came -1"),
    ],
)
def test_a_wrong_override_is_refused_with_the_place(override: str, expected: str) -> None:
    with pytest.raises(ConfigError) as caught:
        load_job(EXAMPLE, overrides=[override])
    assert str(caught.value) == f"{EXAMPLE} with --set: {expected}"


@pytest.mark.parametrize("setting", ['method="rescore"', 'method="regenerate"', "regenerate_share=0.1"])
def test_what_cannot_be_hidden_in_text_is_refused(setting: str) -> None:
    """Catches credit that leaks: a word that was copied into a line is not the branch's any more."""
    load_job(EXAMPLE, overrides=[f"grpo.credit.{setting}"])
    with pytest.raises(ConfigError, match="text that was handed over cannot be hidden from a thread"):
        load_job(EXAMPLE, overrides=[f"grpo.credit.{setting}", "rollout.mode=text"])


def test_what_is_written_reads_back(tmp_path: Path) -> None:
    config = load_job(EXAMPLE, overrides=['run.folder="a \\"b\\" ü\\\\c"', "task.parts=[2]", "run.resume=true"])
    (tmp_path / "config.toml").write_text(toml(config))
    assert load_job(tmp_path / "config.toml") == config


def test_only_the_same_run_is_resumed() -> None:
    config = load_job(EXAMPLE)
    for override in ("run.resume=true", "run.folder=moved", "grpo.steps=99", "run.save_every_steps=3", "run.project=x"):
        assert job_digest(load_job(EXAMPLE, overrides=[override])) == job_digest(config), override
    for override in ("run.seed=1", "imitation.steps=9", "grpo.questions=9", "rollout.mode=text", "model.name=x"):
        assert job_digest(load_job(EXAMPLE, overrides=[override])) != job_digest(config), override


def test_a_dry_run_prints_the_whole_job(capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["train", str(EXAMPLE), "--dry-run", "--resume", "--set", "grpo.steps=7"]) == 0
    printed = capsys.readouterr().out
    assert printed.strip() == describe(load_job(EXAMPLE, overrides=["grpo.steps=7", "run.resume=true"]))
    assert "grpo.loss.clip_high = 0.28" in printed.splitlines()


def test_a_policy_cannot_be_held_to_one_from_before_its_imitation() -> None:
    table = {"kind": "job", "run": {"folder": "x"}, "imitation": {"steps": 3}}
    with pytest.raises(ConfigError, match=r"grpo\.loss\.kl_weight: keeps to the policy .* imitation\.steps = 3;"):
        parse_job(table | {"grpo": {"steps": 1, "loss": {"kl_weight": 0.1}}}, source="x")
    parse_job(table | {"grpo": {"steps": 1}}, source="x")


@pytest.mark.parametrize("section", ['adapter.targets = ["q_proj"]', "adapter.rank = 4", ""])
def test_a_section_that_may_be_missing_reads_back(section: str, tmp_path: Path) -> None:
    written = tmp_path / "config.toml"
    written.write_text(section + "\n" + EXAMPLE.read_text())
    config = load_job(written)
    assert (config.adapter is None) == (not section)
    written.write_text(toml(config))
    assert load_job(written) == config
