"""What a run says of itself over HTTP, and what it may be asked.

Catches: gauges that stay up when memory was given back; counters that fall; a label that grows with threads, a series
that appears late; a run that cannot be reached while it starts; a page that anybody may fetch, or that a foreign web
page can; a pause that stops a step half-way, or is not left on SIGTERM; a save that is counted and not written.
"""

from __future__ import annotations

import json
import signal
import subprocess
import threading
import time
import urllib.error
import urllib.request
from contextlib import AbstractContextManager
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
import tiny_policy
from fastapi.testclient import TestClient
from prometheus_client.parser import text_string_to_metric_families
from serving_process import serving
from test_job_cli import JOB

from octopus import cli
from octopus.core.graph import Graph
from octopus.core.limits import Limits
from octopus.core.pool import PagePool
from octopus.rollout.agents import State
from octopus.rollout.cancelling import Cancelling, LiveThread
from octopus.train import saves
from octopus.train.service.answers import Answers
from octopus.train.service.app import new_app
from octopus.train.service.observed import Observed

FIGURES: dict[str, Any] = {
    "stage": "grpo", "updated": True, "sampled_tokens": 7, "packed_tokens": 20, "path_tokens": 30, "oom_retries": 0,
    "primitives": {"fork": 2, "commit": 1}, "outcomes": {"answered": 3}, "silent_groups": 1, "reward": 0.5,
    "branch_term_histogram": [0, 0, 1, 0, 5, 0, 0, 2, 1], "tool_calls": {"failed": 1, "ok": 4},
    "tool_seconds": {"failed": 0.5, "ok": 4.0},
    "loss": float("nan"), "rollout_seconds": 1.5, "step_seconds": 2.0, "branch_terms_undefined": 4,
}  # fmt: skip


def client(observed: Observed, token: str | None = None) -> TestClient:
    return TestClient(new_app(Answers(observed), hosts=["testserver"], token=token))


def series(text: str) -> dict[tuple[str, ...], float]:
    """Values by name and label values, in the order of the labels' names."""
    families = text_string_to_metric_families(text)
    return {(s.name, *dict(sorted(s.labels.items())).values()): s.value for family in families for s in family.samples}


def test_gauges_come_from_the_store_and_labels_are_closed() -> None:
    graph = Graph(pages=PagePool(16, page_size=4), limits=Limits(fan_out=10_000))
    observed = Observed("run")
    page = client(observed)
    before = series(page.get("/metrics").text)
    observed.rollouts(graph, Cancelling())
    root = graph.thread()
    graph.append(root, [1] * 8)
    with graph.begin_step([root]) as step:
        for wave in step.waves:
            for stretch in wave:
                step.publish(stretch)
    held = series(page.get("/metrics").text)
    threads = [root, *graph.fork(root, 10_000)]
    many = series(page.get("/metrics").text)
    for thread in threads:
        graph.drop(thread)
    graph.trim()
    after = series(page.get("/metrics").text)
    used = ("octopus_kv_pages", "used", "device")
    assert held[used] == many[used] == 2 and after[used] == 0
    assert many[("octopus_threads",)] == 10_001 and after[("octopus_threads",)] == 0
    assert held.keys() == many.keys() == after.keys() and len(many) < 300
    assert before.keys() < held.keys()


def test_steps_add_up_and_what_is_not_a_number_is_left_out() -> None:
    observed = Observed("run", clock_s=lambda: 1_000.5)
    page = client(observed)
    first = series(page.get("/metrics").text)
    for step in (1, 2):
        observed.step(step, 5, FIGURES)
    found = series(page.get("/metrics").text)
    assert found[("octopus_train_steps_total", "grpo")] == 2
    assert found[("octopus_train_steps_total", "imitation")] == first[("octopus_train_steps_total", "imitation")] == 0
    assert found[("octopus_primitive_calls_total", "fork")] == 4
    assert found[("octopus_episodes_total", "answered")] == 6 and found[("octopus_episodes_total", "capacity")] == 0
    assert found[("octopus_step_seconds_sum", "rollout")] == 3.0 and found[("octopus_step_seconds_sum", "credit")] == 0
    cells = [found[("octopus_step_seconds_bucket", bound, "rollout")] for bound in ("1.0", "3.0", "+Inf")]
    assert cells == [0, 2, 2] and found[("octopus_step_seconds_count", "credit")] == 0
    assert found[("octopus_tool_seconds_total", "failed")] == 1.0 and found[("octopus_tool_seconds_total", "ok")] == 8.0
    assert found[("octopus_branch_terms_undefined_total",)] == 8
    terms = [found[("octopus_branch_terms_total", low)] for low in ("-Inf", "-0.5", "-0.01", "0.5", "1.0")]
    assert terms == [0, 2, 10, 4, 2]
    assert [found[("octopus_tool_calls_total", outcome)] for outcome in ("ok", "failed")] == [8, 2]
    assert found[("octopus_last_step_timestamp_seconds",)] == 1_000.5
    assert found[("octopus_reward",)] == 0.5 and ("octopus_loss",) not in found
    assert (found[("octopus_run_step",)], found[("octopus_run_steps_planned",)]) == (2, 5)
    assert not [name for name, *_ in found if name.endswith("_created")]
    assert page.get("/status").json()["figures"]["loss"] is None


def test_readiness_follows_the_phase_and_life_does_not() -> None:
    observed = Observed("run")
    page = client(observed)
    for phase, ready in (("starting", 503), ("training", 200), ("evaluating", 200), ("stopping", 503)):
        observed.phase(phase)  # type: ignore[arg-type]
        assert (page.get("/readyz").status_code, page.get("/livez").status_code) == (ready, 200)
        assert page.get("/status").json()["phase"] == phase


def test_whoever_is_live_can_be_cancelled_and_nobody_else() -> None:
    """Catches: an answer before anybody looked; a thread's number in a label; a wish carried out by whoever asks."""
    observed, cancelling = Observed("run"), Cancelling()
    observed.rollouts(Graph(pages=PagePool(4, page_size=4)), cancelling)
    page = client(observed)
    cancelling.plays(lambda: [LiveThread(thread=n, episode=f"a/{n // 100}", state=State.CALLING) for n in range(150)])
    live = page.get("/status").json()["live"]
    assert (live["episodes"], live["threads"], len(live["some"])) == (2, 150, 100)
    assert live["some"][0] == {"thread": 0, "episode": "a/0", "state": "calling"}
    assert page.post("/cancel", json={"thread": 7}).status_code == 202
    assert page.post("/cancel", json={"episode": "a/1"}).status_code == 202
    missing = page.post("/cancel", json={"thread": 150})
    assert missing.status_code == 404 and "there are 150 threads of 2 episodes" in missing.json()["detail"]
    for body in ({}, {"thread": 1, "episode": "a/0"}, {"thread": "1"}, {"thread": -1}, {"thread": True}, {"all": True}):
        assert page.post("/cancel", json=body).status_code == 422, body
    before = series(page.get("/metrics").text)
    wishes = cancelling.taken()
    assert [(wish.thread, wish.episode) for wish in wishes] == [(7, None), (None, "a/1")]
    cancelling.carried_out(wishes[0], State.CALLING)
    after = series(page.get("/metrics").text)
    assert before.keys() == after.keys()
    changed = {name: after[name] - before[name] for name in after if after[name] != before[name]}
    assert changed.pop(("octopus_cancellations_total", "calling", "operator")) == 1
    assert changed.pop(("octopus_cancel_release_seconds_count",)) == 1
    assert {name.removeprefix("octopus_cancel_release_seconds_") for name, *_ in changed} == {"bucket", "sum"}


def test_who_may_ask() -> None:
    observed = Observed("run")
    guarded = client(observed, token="a-token-of-some-length")
    for method, path in (("GET", "/metrics"), ("GET", "/status"), ("POST", "/pause"), ("POST", "/save")):
        for header in ({}, {"Authorization": "Bearer wrong"}, {"Authorization": "Bearer "}):
            assert guarded.request(method, path, headers=header).status_code == 401
    assert guarded.get("/livez").status_code == 200
    right = {"Authorization": "Bearer a-token-of-some-length"}
    assert guarded.get("/status", headers=right).status_code == 200
    assert not observed.paused
    assert client(observed).get("/status", headers={"Host": "evil.example"}).status_code == 400
    assert client(observed).get("/pause").status_code == 405
    assert client(observed).put("/status").status_code == 405
    assert client(observed).get("/docs").status_code == 404
    assert {"/metrics", "/pause"} <= client(observed).get("/openapi.json").json()["paths"].keys()


def test_a_pause_is_between_steps_and_a_save_does_not_end_it() -> None:
    observed, passed = Observed("run"), threading.Event()
    page = client(observed)
    assert page.post("/pause").status_code == 202
    answers: list[bool] = []

    def run() -> None:
        while answers[-1:] != [False]:
            answers.append(observed.between_steps(lambda: False))
        passed.set()

    thread = threading.Thread(target=run, daemon=True)
    thread.start()
    assert not passed.wait(0.3)
    page.post("/save")
    assert not passed.wait(0.3) and answers == [True]
    page.post("/resume")
    assert passed.wait(5) and answers == [True, False]
    observed.pause()
    assert observed.between_steps(lambda: True) is False


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        (["--host", "0.0.0.0"], "expected --token-file to listen on 0.0.0.0"),
        (["--token-file", "/nowhere/token"], "--token-file /nowhere/token: "),
        (["--set", "kind=spine"], "kind"),
    ],
)
def test_what_is_refused(
    arguments: list[str], expected: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "job.toml").write_text(JOB.format(folder=tmp_path))
    assert cli.main(["serve", str(tmp_path / "job.toml"), *arguments]) == 2
    assert expected in capsys.readouterr().err
    assert not (tmp_path / "run").exists()


def test_every_run_is_counted_once_by_one_process(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Row 65 of public bugs. Catches: a registry that runs share, and ranks that each serve what all of them did."""
    one, other = Observed("one"), Observed("other")
    pages = [client(one), client(other)]
    one.step(1, 5, FIGURES)
    texts = [page.get("/metrics").text for page in pages]
    assert [series(text)[("octopus_train_steps_total", "grpo")] for text in texts] == [1, 0]
    lines = [line.rpartition(" ")[0] for line in texts[0].splitlines() if not line.startswith("#")]
    assert len(lines) == len(set(lines))
    monkeypatch.setenv("TORCHELASTIC_RUN_ID", "1")  # As torchrun sets it.
    (tmp_path / "job.toml").write_text(JOB.format(folder=tmp_path))
    assert cli.main(["serve", str(tmp_path / "job.toml")]) == 2
    assert "octopus serve runs one process" in capsys.readouterr().err


def fetch(url: str, method: str = "GET", body: Any = None) -> tuple[int, str]:
    data = None if body is None else json.dumps(body).encode()
    try:
        request = urllib.request.Request(url, data, {"Content-Type": "application/json"}, method=method)
        with urllib.request.urlopen(request, timeout=10) as answer:
            return answer.status, answer.read().decode()
    except urllib.error.HTTPError as error:
        return error.code, error.read().decode()


def served(folder: Path, *settings: str) -> AbstractContextManager[tuple[str, subprocess.Popen[str]]]:
    """The address of a job of many steps, and its process; killed if it still runs in the end."""
    tiny_policy.policy_folder(folder / "policy")
    (folder / "job.toml").write_text(JOB.format(folder=folder))
    # No save comes but the one that is asked for: one that is there already is not written again.
    long = ("grpo.steps=500", "evaluation.every_steps=500", "run.save_every_steps=500")
    return serving(folder / "job.toml", *long, *settings)


def leaves_on_sigterm(run: subprocess.Popen[str]) -> bool:
    """Whether the process ends in time, as one that was stopped."""
    run.send_signal(signal.SIGTERM)
    assert run.stdout is not None
    run.stdout.read()
    return run.wait(20) == 143


def test_a_job_is_served_paused_saved_and_stopped(tmp_path: Path) -> None:
    with served(tmp_path) as (address, run):
        assert fetch(f"{address}/livez")[0] == 200
        assert fetch(f"{address}/readyz")[0] in (200, 503)
        until(lambda: json.loads(fetch(f"{address}/status")[1])["step"] >= 3)
        assert fetch(f"{address}/readyz")[0] == 200
        scrapes = [series(fetch(f"{address}/metrics")[1]) for _ in range(5)]
        for one, next_ in pairwise(scrapes):
            rising = [key for key in one if key[0].endswith("_total")]
            assert rising and all(next_[key] >= one[key] for key in rising)
        fetch(f"{address}/pause", "POST")
        fetch(f"{address}/save", "POST")  # Comes when the step under way has been taken.
        before = json.loads(fetch(f"{address}/status")[1])["step"]
        until(lambda: (json.loads(fetch(f"{address}/status")[1])["last_save_step"] or 0) >= before)
        paused = json.loads(fetch(f"{address}/status")[1])
        time.sleep(1.0)
        saved = json.loads(fetch(f"{address}/status")[1])
        assert saved == paused and saved["step"] == saved["last_save_step"] <= before + 1
        assert leaves_on_sigterm(run)
    newest = saves.newest(tmp_path / "run", report=print)
    assert newest is not None and newest.step == saved["step"]
    with pytest.raises(urllib.error.URLError):
        fetch(f"{address}/livez")


def until(true: Any, seconds: float = 60.0) -> None:
    end = time.monotonic() + seconds
    while not true():
        assert time.monotonic() < end
        time.sleep(0.05)
