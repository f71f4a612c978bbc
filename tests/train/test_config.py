"""Configuration errors name the place, what was expected and what came.

Catches: a misspelt key that is ignored; a value that is converted quietly; a bound that is not checked; an override
that is not applied or not checked; a configuration that can be changed.
"""

from dataclasses import FrozenInstanceError
from pathlib import Path

import pytest
from scripted import EXAMPLE

from octopus.core.errors import ConfigError
from octopus.train.config import describe, load_config


def message(tmp_path: Path, find: str, replace: str) -> str:
    """The error of the example with one edit, without the file's name."""
    text = EXAMPLE.read_text()
    assert find in text
    path = tmp_path / "edited.toml"
    path.write_text(text.replace(find, replace, 1))
    with pytest.raises(ConfigError) as caught:
        load_config(path)
    return str(caught.value).removeprefix(f"{path}: ")


@pytest.mark.parametrize(
    ("find", "replace", "expected"),
    [
        ("learning_rate =", "learning_rat =", "optimizer.learning_rat: unknown key; did you mean 'learning_rate'?"),
        ("[loss]", "[los]", "los: unknown key; did you mean 'loss'?"),
        (
            "seed = 0",
            "x = 0",
            "run.x: unknown key; known are folder, steps, save_every_steps, resume, seed, stop_seconds, loggers, "
            "project",
        ),
        ("\nanswer =", "\nanwser =", "task.rollouts[0].anwser: unknown key; did you mean 'answer'?"),
        ("steps = 8\n", "", "run.steps: missing, expected a whole number at least 1"),
        ("steps = 8", "steps = 0", "run.steps: expected a whole number at least 1, came 0"),
        ("steps = 8", "steps = 8.0", "run.steps: expected a whole number, came 8.0"),
        ("steps = 8", "steps = true", "run.steps: expected a whole number, came true"),
        ("clip_low = 0.2", "clip_low = '0.2'", "loss.clip_low: expected a number, came '0.2'"),
        ("clip_low = 0.2", "clip_low = 1.5", "loss.clip_low: expected a number at least 0.0 and at most 1.0, came 1.5"),
        ("rate = 2e-6", "rate = nan", "optimizer.learning_rate: expected a number above 0.0, came nan"),
        ("rate = 2e-6", "rate = true", "optimizer.learning_rate: expected a number, came true"),
        ('"float32"', '"half"', "model.dtype: expected one of 'float32', 'float64', 'bfloat16', came 'half'"),
        ("[model]", "[[model]]", "model: expected a section, came a list"),
        ('\nanswer = " 1776"', "\nanswer = [1]", "task.rollouts[0].answer: expected a string, came a list"),
        (
            'notes = [" Spoken on November 19, 1863.\\n", ',
            "notes = [",
            "task.rollouts[2].notes: expected 3 notes, one for each of task.documents, came 2",
        ),
    ],
)  # fmt: skip
def test_a_wrong_file_is_refused_with_the_place(tmp_path: Path, find: str, replace: str, expected: str) -> None:
    assert message(tmp_path, find, replace) == expected


def test_what_is_not_toml_is_refused(tmp_path: Path) -> None:
    assert message(tmp_path, "[run]", "[run").startswith("not valid TOML: Expected ']'")


def test_a_missing_file_is_refused() -> None:
    with pytest.raises(ConfigError, match=r"^nowhere\.toml: cannot be read: No such file or directory$"):
        load_config(Path("nowhere.toml"))


def test_overrides_are_toml_or_strings() -> None:
    overrides = ["optimizer.learning_rate=1e-4", "run.resume = true", "model.name=some/folder", "step.logit_rows=7"]
    config = load_config(EXAMPLE, overrides=overrides)
    assert config.optimizer.learning_rate == 1e-4
    assert config.run.resume is True
    assert config.model.name == "some/folder"
    assert config.step.logit_rows == 7


@pytest.mark.parametrize(
    ("override", "expected"),
    [
        ("run.step=3", f"{EXAMPLE} with --set: run.step: unknown key; did you mean 'steps'?"),
        ("run.steps", "--set run.steps: expected section.key=value"),
        ("run..steps=3", "--set run..steps=3: expected section.key=value"),
        ("run.steps.count=3", "--set run.steps.count=3: steps is not a section"),
    ],
)
def test_a_wrong_override_is_refused(override: str, expected: str) -> None:
    with pytest.raises(ConfigError) as caught:
        load_config(EXAMPLE, overrides=[override])
    assert str(caught.value) == expected


def test_the_tree_is_frozen() -> None:
    config = load_config(EXAMPLE)
    with pytest.raises(FrozenInstanceError):
        config.run.steps = 3


def test_describe_lists_defaults_and_nested_lists() -> None:
    text = describe(load_config(EXAMPLE)).splitlines()
    assert "optimizer.beta1 = 0.9" in text
    assert "task.rollouts[1].answer = ' 1787'" in text
