"""SIGTERM to a whole served job, at any moment: it leaves in time, and what it leaves can be resumed.

Catches: a signal that is lost while libraries load; one that breaks a save or an evaluation in two; a service that
holds the process up, or lives on without it; steps that a resume loses or takes twice.
"""

from __future__ import annotations

import os
import random
import re
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
import tiny_policy
from test_job_cli import JOB
from test_job_run import figures
from test_service import fetch, served, until

from octopus.train import saves
from octopus.train.journal import read_journal

LIMIT_S = 20.0
SETTINGS = ["model.name=shipped", "imitation.steps=20", "grpo.steps=120", "grpo.questions=1", "rollout.turn_tokens=32"]
SETTINGS += ["evaluation.every_steps=5", "run.save_every_steps=3"]


def command(verb: str, folder: Path, *more: str) -> list[str]:
    sets = [word for setting in SETTINGS for word in ("--set", setting)]
    return [sys.executable, "-m", "octopus.cli", verb, str(folder / "job.toml"), *sets, *more]


def job(folder: Path) -> Path:
    folder.mkdir(exist_ok=True)
    tiny_policy.policy_folder(folder / "policy")
    (folder / "job.toml").write_text(JOB.format(folder=folder))
    return folder


ENVIRONMENT = os.environ | {"OMP_NUM_THREADS": "1"}  # Everywhere: sums in other threads have other last bits.


def started(folder: Path) -> subprocess.Popen[str]:
    streams = {"stdout": subprocess.DEVNULL, "stderr": subprocess.PIPE}
    line = command("serve", folder, "--port", "0", "--resume")
    return subprocess.Popen(line, text=True, env=ENVIRONMENT, **streams)  # type: ignore[call-overload]


def seconds_to_leave(run: subprocess.Popen[str]) -> tuple[float, str]:
    """After SIGTERM; and its last words."""
    began = time.monotonic()
    run.send_signal(signal.SIGTERM)
    _, said = run.communicate(timeout=LIMIT_S)
    return time.monotonic() - began, said


def children(pid: int) -> list[int]:
    lists = Path(f"/proc/{pid}/task").glob("*/children")  # By the thread that began them.
    return [int(word) for of_thread in lists for word in of_thread.read_text().split()]


def holds_sigterm(pid: int) -> bool:
    """Whether SIGTERM waits in the kernel for it."""
    blocked = re.search(r"^SigBlk:\s*(\w+)", Path(f"/proc/{pid}/status").read_text(), re.MULTILINE)
    return blocked is not None and bool(int(blocked[1], 16) >> (signal.SIGTERM - 1) & 1)


def test_a_signal_while_libraries_load_is_remembered(tmp_path: Path) -> None:
    """Mutation: `_hold_sigterm` left out; the process ends by the signal itself, without a save."""
    with started(job(tmp_path)) as run:
        until(lambda: holds_sigterm(run.pid))
        took, said = seconds_to_leave(run)
    assert (run.returncode, took < LIMIT_S) == (143, True), said
    found = saves.newest(tmp_path / "run", report=pytest.fail)
    assert found is not None and found.step == 0


@pytest.mark.slow
def test_twenty_moments_lose_nothing(tmp_path: Path) -> None:
    """One run, stopped at 20 moments and resumed each time, takes the steps of one that nobody stopped."""
    draw, folder, slowest = random.Random(20), job(tmp_path / "stopped"), 0.0
    for _ in range(20):
        with started(folder) as run:
            time.sleep(draw.uniform(0.3, 14.0))
            assert run.poll() is None, "the job must outlast its stops"
            took, said = seconds_to_leave(run)
            slowest = max(slowest, took)
        assert run.returncode in (143, -signal.SIGTERM), said  # The latter before the first line of ours has run.
        assert not (folder / "run").exists() or saves.newest(folder / "run", report=pytest.fail) is not None
    taken = len(read_journal(folder / "run" / "metrics.jsonl"))
    print(f"slowest to leave: {slowest:.1f} s; {taken} steps taken at the last stop")
    straight = job(tmp_path / "straight")
    for line in (command("train", folder, "--resume"), command("train", straight)):
        subprocess.run(line, check=True, capture_output=True, env=ENVIRONMENT)
    for journal in ("metrics.jsonl", "episodes.jsonl", "evaluations.jsonl"):
        assert figures(folder / "run", journal) == figures(straight / "run", journal)


def alive(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[0] != "Z"
    except FileNotFoundError:
        return False


def test_what_a_run_has_begun_ends_with_it(tmp_path: Path) -> None:
    """Row 47 of public bugs: kill -9 of the parent left children behind. Mutation: a front that outlives its line."""
    with served(tmp_path) as (address, run):
        until(lambda: fetch(f"{address}/livez")[0] == 200)
        begun = children(run.pid)
        assert begun and all(map(alive, begun))
        run.kill()
        run.wait()
        until(lambda: not any(map(alive, begun)), seconds=2.0)
