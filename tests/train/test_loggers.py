"""Figures reach TensorBoard, Weights & Biases and trackio through their own libraries, and go on after a resume.

Catches: a logger that is not written to, or not closed; steps that stand twice in TensorBoard, or go missing, after a
resume; a second run where the first should go on; a text or NaN given to a library; an option that is not passed on; a
missing library that ends in a traceback, or is noticed after hours.
"""

import math
import struct
import sys
import time
from collections.abc import Mapping
from pathlib import Path

import pytest
import tiny_policy
import wandb
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator
from test_job_run import config
from toy_tasks import ToyTasks
from trackio.sqlite_storage import SQLiteStorage
from wandb.proto import wandb_internal_pb2

from octopus.core.errors import ConfigError
from octopus.train.job import Job
from octopus.train.loggers import Loggers
from octopus.train.loggers.logger import numbers_in

Line = Mapping[str, object]


def begin(folder: Path, *names: str, last: Line | None = None) -> Loggers:
    folder.mkdir(exist_ok=True)
    return Loggers(names, folder=folder, project="chess", config={"grpo": {"steps": 9}}, last=last)


def figures(step: int) -> dict[str, object]:
    return {"loss": step / 2, "stage": "grpo", "outcomes": {"done": step}}


def write(loggers: Loggers, steps: range) -> None:
    for step in steps:
        loggers.write(step, figures(step))


def next_second() -> None:
    """Waits: TensorBoard tells the event files of a folder apart, and in order, by the second in their names."""
    time.sleep(1.01 - time.time() % 1)


def interrupted(folder: Path, name: str) -> None:
    """Steps 1 to 5, with an evaluation after 2 and 4; a resume from the save of step 2; again 3 to 7."""
    first = begin(folder, name)
    write(first, range(1, 3))
    first.write(2, {"evaluation/validation": 0.2})
    write(first, range(3, 5))
    first.write(4, {"evaluation/validation": 0.4})
    write(first, range(5, 6))
    first.close()
    next_second()
    second = begin(folder, name, last={"schema_version": 1, "step": 2, **figures(2)})
    second.write(2, {"evaluation/validation": 0.2})
    write(second, range(3, 5))
    second.write(4, {"evaluation/validation": 0.4})
    write(second, range(5, 8))
    second.close()


def scalars(folder: Path, tag: str) -> list[tuple[int, float]]:
    events = EventAccumulator(str(folder / "tensorboard"))
    events.Reload()
    return [(event.step, round(event.value, 6)) for event in events.Scalars(tag)]


def wandb_steps(folder: Path) -> list[list[dict[str, str]]]:
    """What each offline run holds, by the library's own format: blocks of records, each with a header of 7 bytes."""
    runs = []
    for path in sorted((folder / "wandb").glob("offline-run-*/*.wandb")):
        content, place, steps = path.read_bytes(), 7, []
        assert len(content) < 1 << 15  # one block
        while place + 7 <= len(content):
            length, kind = struct.unpack_from("<HB", content, place + 4)
            assert kind == 1
            record = wandb_internal_pb2.Record.FromString(content[place + 7 : place + 7 + length])
            if record.WhichOneof("record_type") == "history":
                steps.append({item.key or "/".join(item.nested_key): item.value_json for item in record.history.item})
            place += 7 + length
        runs.append(steps)
    return runs


def test_only_finite_numbers_are_passed_on() -> None:
    mixed = {"a": 1, "b": {"c": True, "d": {"e": 2.5}}, "f": "text", "g": None, "h": math.nan, "i": [1], "j": math.inf}
    assert dict(numbers_in(mixed)) == {"a": 1.0, "b/c": 1.0, "b/d/e": 2.5}


def test_tensorboard_has_every_step_once(tmp_path: Path) -> None:
    interrupted(tmp_path, "tensorboard")
    assert scalars(tmp_path, "loss") == [(step, step / 2) for step in range(1, 8)]
    assert scalars(tmp_path, "outcomes/done") == [(step, float(step)) for step in range(1, 8)]
    assert scalars(tmp_path, "evaluation/validation") == [(2, 0.2), (4, 0.4)]


@pytest.fixture
def offline(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("WANDB_MODE", "offline")
    monkeypatch.setenv("WANDB_SILENT", "true")


@pytest.mark.usefixtures("offline")
def test_weights_and_biases_goes_on_in_the_same_run(tmp_path: Path) -> None:
    interrupted(tmp_path / "run", "wandb")
    wandb.teardown()  # its process writes the last bytes when it ends
    names = [path.name for path in (tmp_path / "run" / "wandb").glob("offline-run-*/*.wandb")]
    assert names == [f"run-{(tmp_path / 'run' / 'wandb-id').read_text()}.wandb"] * 2
    first, second = wandb_steps(tmp_path / "run")
    assert [(row["_step"], row["loss"]) for row in first] == [(str(step), f"{step / 2:g}") for step in range(1, 6)]
    assert [row.get("evaluation/validation") for row in first] == [None, "0.2", None, "0.4", None]
    # The server drops what a run has already; here we see that nothing is missing.
    assert [row["_step"] for row in second] == [str(step) for step in range(2, 8)]
    raw = next((tmp_path / "run" / "wandb").glob("offline-run-*/*.wandb")).read_bytes()
    assert b"chess" in raw and b"grpo" in raw and b"run" in raw


def test_trackio_goes_on_in_the_same_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("trackio.utils.TRACKIO_DIR", tmp_path / "db")
    monkeypatch.setattr("trackio.sqlite_storage.TRACKIO_DIR", tmp_path / "db")
    interrupted(tmp_path / "run", "trackio")
    assert SQLiteStorage.get_runs("chess") == ["run"]
    rows = SQLiteStorage.get_logs("chess", "run")
    losses = [(row["step"], row["loss"]) for row in rows if "loss" in row]
    assert sorted(set(losses)) == [(step, step / 2) for step in range(1, 8)]
    assert {(row["step"], row["evaluation/validation"]) for row in rows if "evaluation/validation" in row} == {
        (2, 0.2), (4, 0.4),
    }  # fmt: skip


@pytest.mark.parametrize(
    ("name", "module"),
    [("tensorboard", "torch.utils.tensorboard"), ("wandb", "wandb"), ("trackio", "trackio")],
)
def test_a_missing_library_names_what_to_install(
    name: str, module: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, module, None)
    settings = config(tmp_path, imitation=1, grpo=0, loggers=(name,))
    model, codec = tiny_policy.model(), tiny_policy.codec()
    words = rf"run\.loggers: {name} is not installed .*; pip install 'octopus-kv\[{name}\]'"
    with pytest.raises(ConfigError, match=words):
        Job(settings, model=model, codec=codec, tasks=ToyTasks(settings), report=lambda _: None)


def test_no_library_is_loaded_unless_it_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for module in ("torch.utils.tensorboard", "wandb", "trackio"):
        monkeypatch.setitem(sys.modules, module, None)
    begin(tmp_path).write(1, {"loss": 1.0})


def test_a_job_writes_steps_and_evaluations(tmp_path: Path) -> None:
    for steps, resume in ((1, False), (2, True)):
        next_second()
        settings = config(tmp_path, imitation=1, grpo=steps, loggers=("tensorboard",), resume=resume)
        model, codec = tiny_policy.model(), tiny_policy.codec()
        Job(settings, model=model, codec=codec, tasks=ToyTasks(settings), report=lambda _: None).run()
    assert [step for step, _ in scalars(tmp_path, "loss")] == [1, 2, 3]
    assert [step for step, _ in scalars(tmp_path, "reward")] == [2, 3]
    assert [step for step, _ in scalars(tmp_path, "evaluation/validation")] == [1, 3]
    assert [step for step, _ in scalars(tmp_path, "evaluation/after")] == [4]
