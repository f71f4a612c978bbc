"""A journal holds the lines of steps that a run has behind it, whole or not at all.

Catches: lines lost or doubled by a resume; a line cut off by a crash that is read; NaN written into JSON.
"""

import math
from pathlib import Path

from octopus.train.journal import Journal, read_journal


def test_a_resume_drops_what_came_after_the_save(tmp_path: Path) -> None:
    path = tmp_path / "folder" / "metrics.jsonl"
    journal = Journal(path, step=-1)
    for step in (0, 1, 1, 2, 3):
        journal.write(step, {"loss": step / 2})
    with path.open("a") as file:
        file.write('{"step": 1, "lo')
    assert [line["step"] for line in read_journal(path)] == [0, 1, 1, 2, 3]
    resumed = Journal(path, step=2)
    resumed.write(3, {"loss": 7.0})
    resumed.flush()
    assert [(line["step"], line["loss"]) for line in read_journal(path)] == [
        (0, 0.0), (1, 0.5), (1, 0.5), (2, 1.0), (3, 7.0),
    ]  # fmt: skip
    assert [entry.name for entry in path.parent.iterdir()] == ["metrics.jsonl"]


def test_a_run_that_begins_keeps_nothing(tmp_path: Path) -> None:
    path = tmp_path / "metrics.jsonl"
    Journal(path, step=-1).write(0, {})
    Journal(path, step=-1)
    assert read_journal(path) == []
    assert read_journal(tmp_path / "nowhere") == []


def test_what_is_not_a_finite_number_is_null(tmp_path: Path) -> None:
    path = tmp_path / "metrics.jsonl"
    Journal(path, step=-1).write(4, {"a": math.nan, "b": "x\u2028y"}, {"a": -math.inf})
    assert read_journal(path) == [
        {"schema_version": 1, "step": 4, "a": None, "b": "x\u2028y"},
        {"schema_version": 1, "step": 4, "a": None},
    ]
