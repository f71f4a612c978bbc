"""The description at `/openapi.json` is true: schemathesis asks a service whatever it allows, and what it does not.

Catches: an answer that is not declared, or not of the form that is; a method, a missing token or bad data that is not
refused; errors of the server.
"""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

from http_edge import ANSWERS, MadeUp, edge

from octopus.train.service.app import new_app

TOKEN = "a-token-of-some-length"


def asked_by_schemathesis(folder: Path, answers: dict[str, Any]) -> tuple[int, str]:
    """What it says of a service whose run gives these answers, and its exit status."""
    run = MadeUp(answers)
    with edge(run, token=TOKEN) as at:
        command = [Path(sys.executable).parent / "schemathesis", "--no-color", "run"]
        command += [f"http://127.0.0.1:{at.port}/openapi.json", "--header", f"Authorization: Bearer {TOKEN}"]
        command += ["--seed", "7", "--max-examples", "100", "--generation-database", "none"]
        done = subprocess.run(command, capture_output=True, text=True, check=False, cwd=folder)
    assert set(ANSWERS) == set(run.asked)
    return done.returncode, done.stdout


def test_schemathesis_finds_nothing(tmp_path: Path) -> None:
    code, said = asked_by_schemathesis(tmp_path, ANSWERS)
    assert code == 0, said
    paths = new_app(MadeUp(), hosts=[], token=TOKEN).openapi()["paths"]
    assert f"{len(paths)} selected / {len(paths)} total" in said and "No issues found" in said


def test_schemathesis_would_find_something(tmp_path: Path) -> None:
    """Catches: checks that look at nothing."""
    code, said = asked_by_schemathesis(tmp_path, ANSWERS | {"status": {"phase": "training"}, "metrics": ValueError()})
    assert code == 1 and "Response violates schema" in said and "Server error" in said, said
