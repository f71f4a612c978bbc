"""What the log says of requests.

Catches: a token, a header, a query or a body in a line; a refusal that nobody hears of; a path that speaks to a
terminal; a server's own lines in another format; probes and scrapes that fill the log.
"""

from __future__ import annotations

import io
import json
import os
import signal
import socket
import subprocess
import sys
import time
import urllib.error
import urllib.request
from pathlib import Path
from typing import Any

import tiny_policy
from fastapi.testclient import TestClient
from test_job_cli import JOB
from test_logs import events_of_the_page

from octopus.train.logs import logged
from octopus.train.service.answers import Answers
from octopus.train.service.app import new_app
from octopus.train.service.observed import Observed

TOKEN = "a-token-of-some-length"


def test_refusals_and_wishes_are_told_without_what_they_bear() -> None:
    observed, stream = Observed("run"), io.StringIO()
    page = TestClient(new_app(Answers(observed), hosts=["testserver"], token=TOKEN))
    with logged(stream):
        for path in ("/livez", "/readyz", "/metrics", "/status"):
            page.get(path, headers={"Authorization": f"Bearer {TOKEN}"})
        page.get(f"/status?token={TOKEN}", headers={"Authorization": f"Basic {TOKEN}", "Cookie": TOKEN})
        page.post("/pause", headers={"Authorization": f"Bearer {TOKEN}"})
        page.post("/pause", headers={"Authorization": f"Bearer {TOKEN}"}, content=TOKEN)
        page.get("/no%1b%5b2J%0ahere")
    told = [json.loads(line) for line in stream.getvalue().splitlines()]
    assert TOKEN not in stream.getvalue()
    assert [(line["event"], line["method"], line["path"], line["status"]) for line in told] == [
        ("http.refused", "GET", "/status", 401),
        ("operator.asked", "POST", "/pause", 202),
        ("http.refused", "POST", "/pause", 413),
        ("http.refused", "GET", "/no\\x1b[2J\\nhere", 404),
    ]


def test_a_service_logs_json_alone_and_never_its_token(tmp_path: Path) -> None:
    tiny_policy.policy_folder(tmp_path / "policy")
    (tmp_path / "job.toml").write_text(JOB.format(folder=tmp_path))
    (tmp_path / "token").write_text(TOKEN)
    command = [sys.executable, "-m", "octopus.cli", "serve", str(tmp_path / "job.toml"), "--port", "0"]
    command += ["--token-file", str(tmp_path / "token"), "--set", "grpo.steps=500"]
    environment = os.environ | {"OMP_NUM_THREADS": "1", "PYTHONUNBUFFERED": "1"}
    with (
        (tmp_path / "log").open("w") as log,
        subprocess.Popen(command, stdout=subprocess.PIPE, stderr=log, text=True, env=environment) as run,
    ):
        assert run.stdout is not None
        address = run.stdout.readline().removeprefix("serving ").strip()
        asks(f"{address}/save", TOKEN, "POST")
        asks(f"{address}/save", TOKEN[:-1], "POST")
        with socket.create_connection(address.removeprefix("http://").split(":")) as wire:
            wire.sendall(f"{TOKEN} \x1b[2J\r\n\r\n".encode())
            wire.recv(1_000)
        while "step.taken" not in (tmp_path / "log").read_text() and run.poll() is None:
            time.sleep(0.05)
        run.send_signal(signal.SIGTERM)
        run.stdout.read()
        assert run.wait(20) == 143
    text = (tmp_path / "log").read_text()
    *told, for_people = text.splitlines()
    events: list[dict[str, Any]] = [json.loads(line) for line in told]
    names = [line["event"] for line in events]
    assert TOKEN[:-1] not in text and for_people.startswith("octopus: stopped by SIGTERM")
    assert next(name for name in names if name != "library.said") == "service.listening"
    assert names[-1] == "run.ended" and events[-1]["outcome"] == "stopped"
    assert {"operator.asked", "http.refused", "library.said", "run.stopping"} <= set(names) <= events_of_the_page()


def asks(url: str, token: str, method: str) -> None:
    request = urllib.request.Request(url, method=method, headers={"Authorization": f"Bearer {token}"})
    try:
        urllib.request.urlopen(request, timeout=10).close()
    except urllib.error.HTTPError as error:
        error.close()
