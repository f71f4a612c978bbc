"""Rows as users have them, and the order in which they are asked.

Catches: a prompt repeated or left out because a repeat count is applied twice; an evaluation's row that is trained on;
a column that is lost; a wrong line that is not named; an order that a resumed run does not repeat.
"""

import json
from collections import Counter
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import tiny_policy

from octopus.core.errors import ConfigError
from octopus.retrieval.bm25 import Bm25
from octopus.retrieval.corpus import Corpus
from octopus.train.data.asked import AskedRow
from octopus.train.data.order import Order
from octopus.train.data.rewards import Rewards
from octopus.train.data.rows import Row, read_rows, rows_of
from octopus.train.data.tasks import RowTasks, tasks_of
from octopus.train.job_config import EvaluationConfig, GrpoConfig, JobConfig, JobRunConfig, load_job


def exact(completions: list[str], answer: list[str], **columns: Any) -> list[float]:
    return [float(said == right) for said, right in zip(completions, answer, strict=True)]


def config(**grpo: Any) -> JobConfig:
    return JobConfig(
        kind="job",
        run=JobRunConfig(folder="x"),
        grpo=GrpoConfig(**{"steps": 4, "questions": 4, "rollouts": 2} | grpo),
        evaluation=EvaluationConfig(validation_questions=2, test_questions=3),
    )


def rows(count: int, name: str = "toy") -> list[Row]:
    return rows_of([{"prompt": f"{name} {n}", "answer": str(n)} for n in range(count)], name=name)


def tasks(count: int, **settings: Any) -> RowTasks:
    chosen = settings.pop("config", config())
    return RowTasks(chosen, rows=rows(count), rewards=Rewards([exact]), **settings)


def write(path: Path, *lines: Any) -> Path:
    path.write_text("".join(line if isinstance(line, str) else json.dumps(line) + "\n" for line in lines))
    return path


def test_a_file_and_a_data_set_give_the_same_rows(tmp_path: Path) -> None:
    chat = [{"role": "system", "content": "Be brief."}, {"role": "user", "content": "2 + 3?"}]
    items = [{"prompt": "2 + 3?", "answer": "5"}, {"prompt": chat, "level": 2}]
    read = read_rows(write(tmp_path / "rows.jsonl", items[0], "\n", items[1]))
    assert [row.prompt for row in read] == ["2 + 3?", tuple(chat)] == [row.prompt for row in rows_of(items)]
    assert [dict(row.columns) for row in read] == [{"answer": "5", "level": None}, {"answer": None, "level": 2}]
    assert read[1].name.endswith("rows.jsonl, line 3")
    assert read[0].messages == [{"role": "user", "content": "2 + 3?"}] and read[1].text == "Be brief.\n2 + 3?"


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("{", "line 2: not JSON"),
        ("[" * 100_000, "line 2: not JSON"),
        ("[]", "line 2: expected an object, came list"),
        ({"question": "?"}, "line 2: 'prompt': expected a text or a list of messages, not empty, came no such column"),
        ({"prompt": ""}, "not empty, came ''"),
        ({"prompt": ["hi"]}, r"line 2: prompt\[0\]: expected .*content.*, came 'hi'"),
        ({"prompt": [{"role": "tool", "content": "x"}]}, "expected a role of system, user, assistant, came 'tool'"),
        ({"prompt": [{"role": "assistant", "content": "x"}]}, "expected a last message of the user's"),
        ({"prompt": "x", "completions": 1}, "no column can be called 'completions'"),
    ],
)
def test_what_is_no_row_is_refused(tmp_path: Path, line: Any, message: str) -> None:
    text = line if isinstance(line, str) else json.dumps(line)
    with pytest.raises(ConfigError, match=message):
        read_rows(write(tmp_path / "rows.jsonl", {"prompt": "fine"}, text))


def test_an_empty_or_missing_file_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="expected at least one row with a 'prompt', came none"):
        read_rows(write(tmp_path / "rows.jsonl", "\n"))
    with pytest.raises(ConfigError, match="cannot be read: No such file"):
        read_rows(tmp_path / "missing.jsonl")


def test_every_row_is_asked_once_before_one_comes_again() -> None:
    """9 prompts, 2 rollouts, 4 prompts a step: in each round of 9 every prompt once, with 2 seeds of its own."""
    source = tasks(9 + 5)
    asked = [task for step in range(1, 10) for task in source.training(step)]
    prompts = [task.environment.messages()[0]["content"] for task in asked]
    rounds = [prompts[start : start + 9] for start in range(0, 36, 9)]
    assert all(Counter(one) == Counter({f"toy {n}": 1 for n in range(9)}) for one in rounds)
    assert len({tuple(one) for one in rounds}) > 1
    seeds = [seed for task in asked for seed in task.seeds]
    assert len(seeds) == len(set(seeds)) == 2 * 36
    again = tasks(9 + 5).training(7)
    assert [(task.name, task.seeds) for task in again] == [(task.name, task.seeds) for task in asked[24:28]]


def test_the_order_is_that_of_its_seed_wherever_it_is_asked() -> None:
    first, second = Order(7, seed=1), Order(7, seed=1)
    forwards = [first[number] for number in range(21)]
    assert [second[number] for number in reversed(range(21))] == forwards[::-1]
    assert [Order(7, seed=2)[number] for number in range(21)] != forwards


def test_what_is_evaluated_is_never_trained_on() -> None:
    source = tasks(14)
    trained = {task.environment.messages()[0]["content"] for step in range(1, 9) for task in source.training(step)}
    held = [task.environment.messages()[0]["content"] for s in ("validation", "test") for task in source.held_out(s)]
    assert held == ["toy 9", "toy 10", "toy 11", "toy 12", "toy 13"] and not trained.intersection(held)
    apart = tasks(3, held_out=rows(5, "other"))
    assert [task.environment.messages()[0]["content"] for task in apart.held_out("test")] == [
        "other 2", "other 3", "other 4",
    ]  # fmt: skip
    with pytest.raises(ConfigError, match="at least 6 rows: evaluation asks 2 of validation and 3 of the test, and"):
        tasks(5)
    with pytest.raises(ConfigError, match="at least 5 held-out rows"):
        tasks(5, held_out=rows(4))


def test_a_row_can_be_asked_in_the_codecs_tokens_and_searched() -> None:
    corpus = Corpus.load()
    row = AskedRow(row=rows(1)[0], rewards=Rewards([exact]), retriever=Bm25.build(Corpus(list(corpus)[:50])))
    codec = tiny_policy.codec()
    assert codec.decode(row.prompt(codec)) == "<|question|>toy 0<|end|>"
    document = corpus[3]
    tools = row.tools(0)
    found = tools["search"].call_now(document.text)
    assert found.documents[0] == document.id and found.text.startswith(f"{document.id} : ")
    assert tools["open"].call_now(document.id).text == document.text
    assert not tools["open"].call_now("nowhere").ok
    assert not AskedRow(row=rows(1)[0], rewards=Rewards([exact])).tools(0)


def job(tmp_path: Path, **task: Any) -> JobConfig:
    lines = [f"{key} = {json.dumps(value)}" for key, value in task.items()]
    text = '\n'.join(['kind = "job"', "[run]", 'folder = "x"', "[grpo]", "steps = 1", "[task]", *lines])
    return load_job(write(tmp_path / "job.toml", text))


def test_a_configuration_names_rows_and_functions(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    function = "def length(completions, **rest):\n    return [len(c) for c in completions]\n"
    (tmp_path / "rewards_of_a_test.py").write_text(function)
    write(tmp_path / "rows.jsonl", *({"prompt": str(n)} for n in range(400)))
    found = tasks_of(job(tmp_path, kind="rows", file="rows.jsonl", reward=["rewards_of_a_test:length"]))
    environment = found.training(1)[0].environment
    assert environment.score("four") == 4.0
    for reward, message in (
        ("length", "expected a reward function as 'module:function', came 'length'"),
        ("rewards_of_a_test:width", "reward function rewards_of_a_test:width: .* has no attribute 'width'"),
        ("no_such_module:f", "No module named 'no_such_module'"),
        ("math:pi", "expected a function, came float"),
    ):
        with pytest.raises(ConfigError, match=message):
            tasks_of(job(tmp_path, kind="rows", file="rows.jsonl", reward=[reward]))
    with pytest.raises(ConfigError, match=r"task\.reward: missing, which rows need"):
        job(tmp_path, kind="rows", file="rows.jsonl")
    with pytest.raises(ConfigError, match=r'task\.file: is for rows; set task\.kind = "rows"'):
        job(tmp_path, file="rows.jsonl")


def test_rows_have_no_script(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="rows have no script to imitate"):
        tasks(9).scripted(1)
    text = 'kind = "job"\n[run]\nfolder = "x"\n[grpo]\nsteps = 1\n[imitation]\nsteps = 1\n[model]\ndialect = "chat"\n'
    with pytest.raises(ConfigError, match=r"imitation\.file: missing"):
        load_job(write(tmp_path / "job.toml", text))


def test_the_run_seed_orders_the_rows() -> None:
    other = replace(config(), run=JobRunConfig(folder="x", seed=1))
    names = [[task.name.partition(": ")[2] for task in tasks(14, config=c).training(1)] for c in (config(), other)]
    assert names[0] != names[1]
