"""The line of JSON that a run of the fuzzers leaves."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from fuzz import __main__ as command
from fuzz.attacks import Found


def test_a_run_leaves_a_line_with_what_it_did(tmp_path: Path) -> None:
    """Catches: a run that overwrites the one before, or leaves out what is needed to run it again."""
    file = tmp_path / "fuzz.jsonl"
    for seed in (1, 2):
        assert command.main(["canary", "--seed", str(seed), "--json", str(file)]) == 0
    lines = [json.loads(line) for line in file.read_text().splitlines()]
    assert [line["seed"] for line in lines] == [1, 2]
    assert {"kind", "seed", "operations", "seconds", "result", "date", "python"} == set(lines[0])
    assert lines[0]["kind"] == "canary" and lines[0]["result"].startswith("clean; all of")


def test_a_run_that_finds_something_says_so(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Catches: a fault that is recorded as a clean run, or forgotten."""

    def fail(seed: int) -> command.Done:
        raise Found(f"a fault at seed {seed}")

    monkeypatch.setitem(command.MODES, "soak", fail)
    file = tmp_path / "fuzz.jsonl"
    assert command.main(["soak", "--seed", "3", "--json", str(file)]) == 1
    (line,) = file.read_text().splitlines()
    assert json.loads(line)["result"] == "found: a fault at seed 3"
