"""A whole job on rows from the command line: demonstrations, rollouts, rewards, the policy, its export.

Catches: an option of the configuration that is not connected; a chat policy that is saved without its tokenizer; a
reward that does not reach the gradient; a journal that does not tell what each function said.
"""

import json
from pathlib import Path
from typing import Any

import pytest
import tiny_policy
import torch
from chat_tokenizers import PLAIN, tokenizer
from tiny_models import tiny_llama
from toy_tasks import environment
from transformers import AutoModelForCausalLM, AutoTokenizer

from octopus import cli
from octopus.rollout.records import as_json
from octopus.rollout.scripted import play_script
from octopus.train.journal import read_journal

JOB = """
kind = "job"
[run]
folder = "run"
[model]
name = "policy"
dialect = "{dialect}"
[task]
kind = "rows"
file = "rows.jsonl"
reward = ["row_job_rewards:short", "row_job_rewards:never"]
reward_weights = [0.5, 1.0]
[rollout]
mode = "{mode}"
turn_tokens = 6
thread_tokens = 9
pages = 256
[imitation]
steps = {imitation}
episodes = 2
{demonstrations}
[grpo]
steps = 2
questions = 2
rollouts = 3
[evaluation]
validation_questions = 1
test_questions = 2
"""
REWARDS = """
def short(completion_ids, prompts, level, **rest):
    assert len(prompts) == len(level) == len(completion_ids)
    return [1.0 / (len(ids) + sum(ids) % 7 + number) for ids, number in zip(completion_ids, level)]

async def never(completions, **rest):
    return [None] * len(completions)
"""


def run(folder: Path, monkeypatch: pytest.MonkeyPatch, *, dialect: str, mode: str, imitation: int) -> None:
    monkeypatch.chdir(folder)
    Path("row_job_rewards.py").write_text(REWARDS)
    rows: list[Any] = [{"prompt": f"which is {n}?", "level": n} for n in range(1, 5)]
    rows.append({"prompt": [{"role": "user", "content": "and now?"}], "level": 3})
    Path("rows.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    demonstrations = ""
    if imitation:
        shown = [as_json(play_script(str(n), environment(1 + n % 2), tiny_policy.codec(), mode)) for n in range(3)]
        Path("demos.jsonl").write_text("".join(json.dumps(line) + "\n" for line in shown))
        demonstrations = 'file = "demos.jsonl"'
    text = JOB.format(dialect=dialect, mode=mode, imitation=imitation, demonstrations=demonstrations)
    Path("job.toml").write_text(text)
    assert cli.main(["train", "job.toml"]) == 0


@pytest.mark.parametrize("mode", ["octopus", "single"])
def test_a_job_on_rows(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, mode: str) -> None:
    tiny_policy.policy_folder(tmp_path / "policy")
    run(tmp_path, monkeypatch, dialect="codec", mode=mode, imitation=2)
    metrics = read_journal(Path("run/metrics.jsonl"))
    assert [line["stage"] for line in metrics] == ["imitation"] * 2 + ["grpo"] * 2
    assert all(line["updated"] and line["grad_norm"] > 0 for line in metrics)
    episodes = read_journal(Path("run/episodes.jsonl"))
    imitated, played = episodes[:4], episodes[4:]
    assert len(played) == 12 and {line["name"] for line in imitated[:2]} < {"0", "1", "2"}
    for line in played:
        said = {event["argument"]: event["result"] for event in line["events"][0] if event["kind"] == "reward"}
        assert said["never"] == "None" and line["reward"] == 0.5 * float(said["short"])
    prompts = {line["name"].partition(": ")[2].rpartition("/")[0] for line in played}
    assert prompts == {"rows.jsonl, line 1", "rows.jsonl, line 2"}  # the last three rows are for evaluation


def test_a_job_of_a_chat_model(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    model = tiny_llama(vocab_size=1024, dtype=torch.float32)
    model.save_pretrained(tmp_path / "policy")
    tokenizer(PLAIN).save_pretrained(tmp_path / "policy")
    run(tmp_path, monkeypatch, dialect="chat", mode="octopus", imitation=0)
    metrics = read_journal(Path("run/metrics.jsonl"))
    assert [line["stage"] for line in metrics] == ["grpo"] * 2 and all(line["grad_norm"] > 0 for line in metrics)
    assert max(line["log_ratio_max"] for line in metrics) < 1e-4
    assert cli.main(["export", "run", "out"]) == 0
    exported = AutoModelForCausalLM.from_pretrained("out", dtype="auto")
    best = AutoModelForCausalLM.from_pretrained("run/best", dtype="auto")
    begun = dict(model.named_parameters())
    assert not all(torch.equal(begun[name], p) for name, p in exported.named_parameters())
    pairs = zip(exported.parameters(), best.parameters(), strict=True)
    assert all(torch.equal(one, other) for one, other in pairs)
    written = AutoTokenizer.from_pretrained("out")
    assert written.chat_template == PLAIN and len(written) == len(tokenizer(PLAIN))
