"""The log: JSON off a terminal, lines for people on one, and nothing that a stranger's text can do to either.

Catches: tool text that ends its line, speaks to a terminal or fills the disk; a figure that is no JSON; a library whose
lines are of another format, or that floods; an event that the documentation does not know; a prompt in a log.
"""

from __future__ import annotations

import ast
import io
import json
import logging
import re
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
import tiny_policy
from hypothesis import given
from hypothesis import strategies as st
from structlog.contextvars import bound_contextvars
from test_job_cli import JOB
from transformers.utils import logging as theirs

from octopus import cli
from octopus.rollout.logs import new_logger
from octopus.train.logs import MOST_A_SECOND, MOST_CHARACTERS, Flood, logged, models_logged, shown

ROOT = Path(__file__).parents[2]
OWN = new_logger("octopus.tests")
NASTY = "\x1b[2J\x07ok\r\n{\"event\": \"run.ended\"}\u202e\u2028\x9b\x00\ud800"


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


@contextmanager
def unreported() -> Iterator[None]:
    """Pytest does not listen: its processes cannot tell each other of half a character."""
    root = logging.getLogger()
    heard, root.handlers = root.handlers, []
    try:
        yield
    finally:
        root.handlers = heard


def lines(stream: io.StringIO) -> list[dict[str, Any]]:
    return [json.loads(line) for line in stream.getvalue().splitlines()]


@given(st.text(st.characters(exclude_categories=[])))
def test_every_text_is_one_printable_line_that_says_what_was_cut(text: str) -> None:
    one = shown(text, 20)
    assert one.isprintable()
    if len(text) <= 20 and text.isprintable():
        assert one == text
    assert one.endswith(f" ... [{len(text) - 20} characters cut]") == (len(text) > 20) or "characters cut]" in text


def test_a_strangers_text_stays_in_its_place() -> None:
    """Both formats. Mutation: a value that is written as it came."""
    for stream in (io.StringIO(), Terminal()):
        with unreported(), logged(stream):
            OWN.warning("tool.failed", tool="search", error=NASTY, left=NASTY * 100)
            logging.getLogger("uvicorn.error").warning("Invalid request: %s", NASTY)
        written = stream.getvalue()
        for line in written.splitlines():
            assert re.sub(r"\x1b\[\d+m", "", line).isprintable()
        assert len(written.splitlines()) == 2 and len(written) < 4 * MOST_CHARACTERS * 6
        assert str(len(NASTY) * 100 - MOST_CHARACTERS) in written.replace(",", "")
    assert "\x1b[2J" not in written


def test_off_a_terminal_a_line_is_json_with_its_ids() -> None:
    stream = io.StringIO()
    with unreported(), logged(stream), bound_contextvars(run="a", step=3, episode="q/1", thread=7):
        OWN.info("step.taken", loss=float("nan"), reward=0.5, updated=True, stage=Path("x"))
        OWN.debug("step.taken")
        logging.getLogger("other").warning("told %s", "so")
        logging.getLogger("other").info("quiet")
        warnings.warn("odd", stacklevel=1)
        try:
            raise ValueError(NASTY)
        except ValueError as error:
            OWN.error("run.ended", outcome="failed", exc_info=error)
    taken, other, warned, ended = lines(stream)
    ids = {"run": "a", "step": 3, "episode": "q/1", "thread": 7}
    assert list(taken)[:3] == ["timestamp", "level", "event"] and taken.pop("timestamp").endswith("Z")
    said = {"event": "step.taken", "level": "info", "loss": None, "reward": 0.5, "updated": True, "stage": "x"}
    assert taken == said | ids
    assert (other["event"], other["logger"], other["text"], other["step"]) == ("library.said", "other", "told so", 3)
    assert warned["logger"] == "py.warnings" and "odd" in warned["text"]
    assert ended["exception"].startswith("Traceback") and "\x1b" not in ended["exception"]
    assert '\n  File "' in ended["exception"] and ended["exception"].endswith("\\ud800")


def test_at_a_terminal_warnings_are_for_people() -> None:
    stream = Terminal()
    with logged(stream):
        OWN.info("step.taken", reward=0.5)
        OWN.warning("tool.failed", tool="search")
        OWN.error("run.ended", outcome="failed")  # The command itself says it.
    (line,) = stream.getvalue().splitlines()
    assert "tool.failed" in line and "search" in line and not line.startswith("{")


def test_afterwards_nothing_is_set_up_any_more() -> None:
    stream, before = io.StringIO(), list(logging.getLogger().handlers)
    with pytest.raises(KeyError), logged(stream):
        raise KeyError
    assert logging.getLogger().handlers == before and logging.getLogger("octopus").level == logging.NOTSET
    assert logging.lastResort is not None and warnings.showwarning.__module__ != "logging"


@pytest.mark.parametrize("kind", [io.StringIO, Terminal])
def test_the_library_of_models_writes_nothing_of_its_own(kind: type[io.StringIO], capsys: Any) -> None:
    """Its handler would write beside ours, and its bars would break lines."""
    stream, bars = kind(), theirs.is_progress_bar_enabled()
    with models_logged(stream):
        theirs.get_logger("transformers.tests").warning("odd\nweights")
        assert theirs.is_progress_bar_enabled() == (bars and stream.isatty())
    assert capsys.readouterr().err == "" and len(stream.getvalue().splitlines()) == 1
    assert "transformers.tests" in stream.getvalue() and theirs.is_progress_bar_enabled() == bars
    root = logging.getLogger("transformers")
    assert root.handlers and not root.propagate


def test_torch_writes_nothing_of_its_own(capsys: Any) -> None:
    """Its handler would write lines that are no JSON, as some packages make it do while they are loaded."""
    stream, before = io.StringIO(), list(logging.getLogger("torch").handlers)
    with models_logged(stream):
        logging.getLogger("torch.utils.tests").warning("odd\nnode")
    (line,) = stream.getvalue().splitlines()
    assert json.loads(line)["logger"] == "torch.utils.tests" and capsys.readouterr().err == ""
    assert logging.getLogger("torch").handlers == before


def test_a_flood_is_counted_and_others_are_heard() -> None:
    """Mutation: one counter for all events, or one that is not told."""
    now = [100.0]
    flood = Flood(clock_s=lambda: now[0])

    def passes(event: str) -> logging.LogRecord | None:
        record = logging.LogRecord("octopus.x", logging.WARNING, "", 0, {"event": event}, None, None)
        return record if flood.filter(record) else None

    assert sum(passes("http.refused") is not None for _ in range(1_000)) == MOST_A_SECOND
    assert passes("tool.failed") is not None
    now[0] = 101.5
    told = passes("http.refused")
    assert told is not None and told.__dict__["left_out"] == 1_000 - MOST_A_SECOND
    assert "left_out" not in passes("http.refused").__dict__


def test_a_job_logs_json_without_a_prompt(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    tiny_policy.policy_folder(tmp_path / "policy")
    (tmp_path / "job.toml").write_text(JOB.format(folder=tmp_path))
    assert cli.main(["train", str(tmp_path / "job.toml")]) == 0
    told = [json.loads(line) for line in capsys.readouterr().err.splitlines()]
    names = [line["event"] for line in told]
    assert names[0] == "run.started" and names[-1] == "run.ended" and told[-1]["outcome"] == "done"
    assert [line["step"] for line in told if line["event"] == "step.taken"] == [1, 2, 3]
    assert {"save.written", "evaluation.done"} <= set(names) <= events_of_the_page()
    assert {line.get("run") for line in told} == {str(tmp_path / "run")}, told
    assert "step" not in next(line for line in told if line["event"] == "evaluation.done")
    assert cli.main(["train", str(tmp_path / "job.toml")]) == 1
    *told, line_for_people = capsys.readouterr().err.splitlines()
    assert [json.loads(line)["event"] for line in told] == ["run.started", "run.ended"]
    assert json.loads(told[-1])["outcome"] == "failed" and line_for_people.startswith("octopus: ")


def events_of_the_page() -> set[str]:
    page = (ROOT / "docs" / "logs.md").read_text()
    return set(re.findall(r"^\| `([a-z_]+\.[a-z_]+)` \|", page, flags=re.MULTILINE))


def test_the_events_of_the_code_are_those_of_the_page() -> None:
    """Catches: an event that is made up at its place, or one that nothing logs any more."""
    found = {"library.said"}
    for path in (ROOT / "octopus").rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute):
                owner = node.func.value
                logs = isinstance(owner, ast.Name) and owner.id == "LOGGER"
                if logs or node.func.attr == "short_of_memory":
                    found |= {a.value for a in node.args[:1] if isinstance(a, ast.Constant)}
    assert found == events_of_the_page()
