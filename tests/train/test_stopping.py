"""A signal saves and leaves, Ctrl-C after it and the end of patience leave at once; nothing is lost or half done.

Catches: a step that is abandoned after it has begun to change the weights, or is finished though it need not be; an
abandoned step that leaves its traces in the save; a signal that is swallowed by work that catches every error; a run
that hangs in a tool or on a full pipe and never ends; a half-written save; tasks that are skipped by a resume.
"""

import multiprocessing
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest
import tiny_policy
import torch
from test_job_run import config, figures
from toy_tasks import ToyTasks
from transformers import set_seed

from octopus import cli
from octopus.core.errors import Stopped
from octopus.rollout.environment import Task
from octopus.train import saves
from octopus.train.job import Job
from octopus.train.saves import writing
from octopus.train.service.observed import Observed
from octopus.train.stopping import Abandoned, Stopping


def raised(number: signal.Signals) -> None:
    os.kill(os.getpid(), number)


def optimizer() -> torch.optim.Optimizer:
    weight = torch.nn.Parameter(torch.zeros(1))
    weight.grad = torch.ones(1)
    return torch.optim.SGD([weight], lr=1.0)


def weight_of(one: torch.optim.Optimizer) -> float:
    return float(one.param_groups[0]["params"][0].item())


def work_that_is_told(stopping: Stopping, number: signal.Signals, one: torch.optim.Optimizer) -> None:
    with stopping.abandonable(one):
        raised(number)
        one.step()


def work_that_cleans_up(stopping: Stopping) -> None:
    with stopping.abandonable():
        try:
            raised(signal.SIGTERM)
        finally:
            raise ValueError("half a step was cleaned up")


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_work_is_abandoned_before_the_weights_change(number: signal.Signals) -> None:
    stopping, one, before = Stopping(limit_s=60), optimizer(), signal.getsignal(number)
    with stopping.signals():
        with pytest.raises(Abandoned):
            work_that_is_told(stopping, number, one)
        assert stopping.asked
        with pytest.raises(Abandoned), stopping.abandonable():  # nothing new is begun
            pytest.fail("begun")
        assert stopping.stopped("here").exit_code == 128 + number
    assert weight_of(one) == 0.0
    assert signal.getsignal(number) is before


def test_work_is_finished_once_the_weights_change() -> None:
    stopping, one = Stopping(limit_s=60), optimizer()
    signals = iter([signal.SIGTERM])
    one.register_step_post_hook(lambda *_: [raised(number) for number in signals])
    with stopping.signals():
        with stopping.abandonable(one):
            one.step()
            one.step()  # a second update of the same step
            finished = True
        assert finished and stopping.asked and weight_of(one) == -2.0
        one.step()
    with Stopping(limit_s=60).abandonable(one):  # the old block has left nothing on the optimizer
        pass


def test_what_cleaning_up_raises_does_not_hide_the_stop() -> None:
    stopping = Stopping(limit_s=60)
    with stopping.signals(), pytest.raises(Abandoned):
        work_that_cleans_up(stopping)


def test_another_error_stays_what_it_is() -> None:
    stopping = Stopping(limit_s=60)
    with pytest.raises(ValueError, match="a bug"), stopping.abandonable():
        raise ValueError("a bug")


def test_outside_of_such_work_a_signal_waits() -> None:
    stopping = Stopping(limit_s=60)
    with stopping.signals():
        raised(signal.SIGINT)
        assert stopping.asked
    time.sleep(0.01)


class Slow(ToyTasks):
    """Says when a step's tasks are asked for, and holds that step up."""

    def __init__(self, *args: object, at: str, hold: Callable[[], None], mark: Path) -> None:
        super().__init__(*args)
        self.at, self.hold, self.mark = at, hold, mark

    def training(self, step: int) -> list[Task]:
        self.held(f"training {step}")
        return super().training(step)

    def held_out(self, split: str) -> list[Task]:
        self.held(split)
        return super().held_out(split)

    def held(self, name: str) -> None:
        if name == self.at:
            torch.rand(5)  # what the abandoned step draws must not be missing later
            self.mark.touch()
            self.hold()


def child(
    folder: Path, *, at: str = "", hold: Callable[[], None] = lambda: None, resume: bool = False, **run: object
) -> None:
    """A whole job, as the command runs it."""
    settings = config(folder / "run", imitation=1, grpo=3, rate=1e-4, resume=resume, **run)
    stopping = Stopping(limit_s=settings.run.stop_seconds)

    def train(_: object) -> None:
        with stopping.signals():
            set_seed(0)
            tasks = Slow(settings, at=at, hold=hold, mark=folder / "held")
            model, codec = tiny_policy.model(), tiny_policy.codec()
            Job(settings, model=model, codec=codec, tasks=tasks, report=lambda _: None, stopping=stopping).run()

    cli._train = train
    os.dup2(os.open(folder / "errors", os.O_WRONLY | os.O_CREAT | os.O_TRUNC), 2)
    sys.stderr = os.fdopen(2, "w")
    sys.exit(cli.main(["train", "job.toml"]))


def stopped(folder: Path, *signals: signal.Signals, gap_s: float = 0.5, **options: object) -> tuple[int, str]:
    """Runs the job until it is held up, sends the signals, and returns its exit code and what it said."""
    folder.mkdir(exist_ok=True)
    process = multiprocessing.get_context("fork").Process(target=child, args=(folder,), kwargs=options)
    process.start()
    while signals and not (folder / "held").exists() and process.is_alive():
        time.sleep(0.02)
    for number in signals:
        time.sleep(gap_s)
        os.kill(process.pid or 0, number)
    process.join(60)
    process.kill()
    return process.exitcode or 0, (folder / "errors").read_text()


def long() -> None:
    time.sleep(50)


def deaf() -> None:
    """Work that nothing ends."""
    while True:
        try:
            time.sleep(50)
        except (Abandoned, Exception):  # noqa: BLE001  as badly as it can be
            continue


@pytest.fixture(scope="module")
def straight(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run that nobody stopped."""
    folder = tmp_path_factory.mktemp("straight")
    assert stopped(folder) == (0, "")
    return folder / "run"


@pytest.mark.parametrize(
    ("at", "number", "code", "step"),
    [
        ("training 2", signal.SIGTERM, 143, 2),
        ("validation", signal.SIGINT, 130, 1),
    ],
)
def test_a_stopped_job_saves_and_resumes_like_one_that_was_not(
    at: str, number: signal.Signals, code: int, step: int, straight: Path, tmp_path: Path
) -> None:
    """Row 51 of public bugs, prompts skipped on resume: tasks of an abandoned step are played again."""
    began = time.monotonic()
    name = f"step-{step:06d}"
    words = f"octopus: stopped by {number.name} after step {step} of 4; {name} holds it, run.resume=true goes on"
    came = stopped(tmp_path, number, at=at, hold=long)
    assert came == (code, f"{words} from there\n")
    assert time.monotonic() - began < 45
    assert (tmp_path / "run" / "latest").read_text() == f"{name}\n"
    assert stopped(tmp_path, resume=True) == (0, "")
    for journal in ("metrics.jsonl", "episodes.jsonl", "evaluations.jsonl"):
        assert figures(tmp_path / "run", journal) == figures(straight, journal)
    last, other = (folder / "step-000004" for folder in (tmp_path / "run", straight))
    assert {path.name for path in last.iterdir()} == {path.name for path in other.iterdir()}
    for path in last.iterdir():
        assert path.read_bytes() == (other / path.name).read_bytes(), path.name


def slow_flush(real: Callable[[Path], None] = writing.flush) -> None:
    """From now on a save takes seconds."""

    def flush(path: Path) -> None:
        time.sleep(0.2)
        real(path)

    writing.flush = flush
    long()


def test_a_second_sigterm_disturbs_no_save(tmp_path: Path) -> None:
    """Row 46 of public bugs: the second of two, 100 ms apart, came while the save was being written, and ended it."""
    code, said = stopped(tmp_path, *3 * [signal.SIGTERM], gap_s=0.1, at="training 2", hold=slow_flush)
    assert (code, said[:54]) == (143, "octopus: stopped by SIGTERM after step 2 of 4; step-00")
    found = saves.newest(tmp_path / "run", report=pytest.fail)
    assert found is not None and found.step == 2


def test_ctrl_c_after_a_signal_leaves_at_once(tmp_path: Path) -> None:
    came = stopped(tmp_path, signal.SIGTERM, signal.SIGINT, at="training 2", hold=deaf)
    assert came == (130, "octopus: a second signal, SIGINT: left without a save\n")
    found = saves.newest(tmp_path / "run", report=pytest.fail)
    assert found is not None and found.step == 1


def slow_disk() -> None:
    """From now on nothing that is written reaches the disk."""
    writing.flush = lambda _: time.sleep(50)
    long()


def test_patience_ends_without_half_a_save(tmp_path: Path) -> None:
    came = stopped(tmp_path, signal.SIGTERM, at="training 2", hold=slow_disk, stop_seconds=1.0)
    assert came == (143, "octopus: no save within 1 s of SIGTERM: left without one\n")
    assert [path.name for path in (tmp_path / "run").glob(".saving-*")] == [".saving-step-000002"]
    found = saves.newest(tmp_path / "run", report=pytest.fail)
    assert found is not None and found.step == 1


JOB = """
kind = "job"
run = {{ folder = "{0}/run" }}
model = {{ name = "{0}/policy" }}
imitation = {{ steps = 400, episodes = 4 }}
grpo = {{ steps = 1 }}
"""


def test_the_command_leaves_with_the_code_of_the_signal(tmp_path: Path) -> None:
    tiny_policy.policy_folder(tmp_path / "policy")
    (tmp_path / "job.toml").write_text(JOB.format(tmp_path))
    command = [sys.executable, "-u", "-m", "octopus.cli", "train", str(tmp_path / "job.toml")]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        line = process.stdout.readline()
        process.send_signal(signal.SIGINT)
        _, errors = process.communicate(timeout=60)
    assert line.startswith("imitation   1/400 ")
    assert process.returncode == 130
    found = saves.newest(tmp_path / "run", report=pytest.fail)
    assert found is not None and found.step >= 1
    assert errors.endswith(
        f"octopus: stopped by SIGINT after step {found.step} of 401; {found.path.name} holds it, run.resume=true goes "
        "on from there\n"
    )


def test_a_job_that_is_asked_from_within_raises(tmp_path: Path) -> None:
    stopping = Stopping(limit_s=60)
    settings = config(tmp_path, imitation=1, grpo=1)
    stopping.ask(signal.SIGTERM)
    model, codec, watch = tiny_policy.model(), tiny_policy.codec(), Observed("run")
    ready, phase = [], watch.phase
    watch.phase = lambda told: (phase(told), ready.append((told, watch.ready)))  # type: ignore[method-assign]
    settings_of_job = {"report": lambda _: None, "stopping": stopping, "watch": watch}
    job = Job(settings, model=model, codec=codec, tasks=ToyTasks(settings), **settings_of_job)
    with pytest.raises(Stopped, match=r"after step 0 of 2; step-000000 holds it"):
        job.run()
    assert ready[-1] == ("stopping", False), "whoever saves to leave is not ready"
