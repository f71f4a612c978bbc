"""A whole run: progress, metrics, saves, resume; and the command line around it.

Catches: a clip that is anchored to the weights after a resume; metrics lines lost or doubled by a resume; a run that
overwrites another; a dry run that loads a model; a traceback shown for a user's mistake.
"""

import json
import signal
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from scripted import EXAMPLE, group
from test_loggers import next_second, scalars
from tiny_models import tiny_llama

from octopus import cli
from octopus.core.errors import ConfigError, OctopusError, Stopped
from octopus.models.backbone import Backbone
from octopus.train.config import TrainConfig, load_config
from octopus.train.stopping import Stopping
from octopus.train.trainer import Trainer


def config(folder: Path, *, steps: int, resume: bool = False) -> TrainConfig:
    loaded = load_config(EXAMPLE, overrides=["optimizer.learning_rate=1e-3", "run.save_every_steps=2"])
    run = replace(loaded.run, folder=str(folder), steps=steps, resume=resume, loggers=("tensorboard",))
    return replace(loaded, run=run)


def run(config: TrainConfig) -> list[str]:
    lines: list[str] = []
    backbone = Backbone(tiny_llama(dtype=torch.float32))
    Trainer(config, backbone=backbone, groups=[group()], report=lines.append).run()
    return lines


def figures(folder: Path) -> list[dict[str, object]]:
    lines = [json.loads(line) for line in (folder / "metrics.jsonl").read_text().splitlines()]
    return [{key: value for key, value in line.items() if key != "step_seconds"} for line in lines]


def test_a_run_reports_measures_and_saves(tmp_path: Path) -> None:
    lines = run(config(tmp_path, steps=3))
    assert lines[0].startswith("pack: ") and lines[0].endswith(" loss terms")
    assert [line.split()[1] for line in lines if line.startswith("step")] == ["1/3", "2/3", "3/3"]
    assert [line["step"] for line in figures(tmp_path)] == [1, 2, 3]
    assert figures(tmp_path)[2]["loss"] < figures(tmp_path)[0]["loss"]
    assert sorted(path.name for path in tmp_path.glob("step-*")) == ["step-000002", "step-000003"]


def test_a_resumed_run_equals_one_that_never_stopped(tmp_path: Path) -> None:
    straight, stopped = tmp_path / "straight", tmp_path / "stopped"
    run(config(straight, steps=4))
    run(config(stopped, steps=2))
    with (stopped / "metrics.jsonl").open("a") as file:
        file.write('{"step": 3, "loss": 7}\n{"step": 4, "lo')  # steps that a crash cut off from their save
    assert run(config(stopped, steps=4, resume=True))[0] == f"resumed from {stopped / 'step-000002'}"
    assert figures(stopped) == figures(straight)
    weights = [folder / "step-000004" / "model.safetensors" for folder in (straight, stopped)]
    assert weights[0].read_bytes() == weights[1].read_bytes()


def test_a_stopped_run_saves_and_resumes_like_one_that_was_not(tmp_path: Path) -> None:
    straight, stopped = tmp_path / "straight", tmp_path / "stopped"
    run(config(straight, steps=4))
    stopping = Stopping(limit_s=60)

    def report(line: str) -> None:
        if line.startswith("step 1/4"):
            stopping.ask(signal.SIGTERM)

    settings, backbone = config(stopped, steps=4), Backbone(tiny_llama(dtype=torch.float32))
    trainer = Trainer(settings, backbone=backbone, groups=[group()], report=report, stopping=stopping)
    with pytest.raises(Stopped, match=r"^stopped by SIGTERM after step 1 of 4; step-000001 holds it") as caught:
        trainer.run()
    assert caught.value.exit_code == 143
    next_second()
    run(config(stopped, steps=4, resume=True))
    assert figures(stopped) == figures(straight)
    assert scalars(stopped, "loss") == [(line["step"], round(line["loss"], 6)) for line in figures(straight)]
    for name in ("model.safetensors", "optimizer.safetensors", "optimizer.json"):
        files = [folder / "step-000004" / name for folder in (straight, stopped)]
        assert files[0].read_bytes() == files[1].read_bytes()


def test_saves_of_another_configuration_are_refused(tmp_path: Path) -> None:
    run(config(tmp_path, steps=2))
    other = config(tmp_path, steps=3, resume=True)
    with pytest.raises(ConfigError, match="step-000002 is a save of another configuration"):
        run(replace(other, loss=replace(other.loss, clip_high=0.7)))


def test_a_used_folder_is_refused(tmp_path: Path) -> None:
    run(config(tmp_path, steps=2))
    with pytest.raises(OctopusError, match=r"holds saves up to step-000002; set run\.resume=true to go on"):
        run(config(tmp_path, steps=3))


def test_a_dry_run_prints_the_configuration_and_loads_no_torch() -> None:
    script = (
        "import sys; from octopus.cli import main; code = main(sys.argv[1:]); "
        "assert 'torch' not in sys.modules; sys.exit(code)"
    )
    command = [sys.executable, "-c", script, "train", str(EXAMPLE), "--dry-run", "--set", "run.steps=77"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")
    assert "run.steps = 77" in done.stdout.splitlines()


def test_a_wrong_configuration_exits_with_2_and_one_line(capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["train", str(EXAMPLE), "--set", "run.stps=1"]) == 2
    expected = f"octopus: {EXAMPLE} with --set: run.stps: unknown key; did you mean 'steps'?\n"
    assert capsys.readouterr().err == expected


def test_a_wrong_command_line_exits_with_2() -> None:
    with pytest.raises(SystemExit) as caught:
        cli.main(["trian"])
    assert caught.value.code == 2


def test_a_run_that_cannot_go_on_exits_with_1(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def refuse(*_: object) -> None:
        raise OctopusError("the pool is full")

    monkeypatch.setattr("octopus.train.trainer.train", refuse)
    assert cli.main(["train", str(EXAMPLE)]) == 1
    assert capsys.readouterr().err == "octopus: the pool is full\n"
