"""Small forms of public bugs of services, and the page that says which test is about which of them."""

from __future__ import annotations

import re
import subprocess
import sys
import time
from pathlib import Path

import pytest
import torch
from test_service import client, series

from octopus.core.graph import Graph
from octopus.core.pool import PagePool
from octopus.rollout.cancelling import Cancelling
from octopus.train import saves
from octopus.train.service.observed import Observed

ROOT = Path(__file__).parent.parent.parent
PAGE = ROOT / "docs" / "public_bugs_service.md"


def test_gauges_fall_when_everybody_is_cancelled_and_no_step_comes() -> None:
    """Row 39 of public bugs. Catches: gauges that a step sets, and nothing else."""
    graph, observed = Graph(pages=PagePool(16, page_size=4)), Observed("run")
    observed.rollouts(graph, Cancelling())
    page = client(observed)
    root = graph.thread()
    graph.append(root, [1] * 8)
    children = graph.fork(root, 3)
    for child in children:
        graph.append(child, [2] * 4)
    with graph.begin_step(children) as step:
        for wave in step.waves:
            for stretch in wave:
                step.publish(stretch)
    used, threads = ("octopus_kv_pages", "used", "device"), ("octopus_threads",)
    before = series(page.get("/metrics").text)
    assert (before[used], before[threads]) == (5, 4)
    graph.cancel(root)
    for thread in (*children, root):
        graph.drop(thread)
    graph.trim()
    after = series(page.get("/metrics").text)
    assert after[used] == after[threads] == 0


def test_files_of_other_processes_are_not_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Row 41 of public bugs. Catches: a page that is put together from a folder that others write into."""
    plain = client(Observed("run")).get("/metrics").text
    (tmp_path / "counter_99999.db").write_bytes(b"rubbish")
    monkeypatch.setenv("PROMETHEUS_MULTIPROC_DIR", str(tmp_path))
    answer = client(Observed("run")).get("/metrics")
    assert (answer.status_code, answer.text) == (200, plain)
    assert [path.name for path in tmp_path.iterdir()] == ["counter_99999.db"]


def test_addresses_that_nobody_serves_make_no_series() -> None:
    """Row 45 of public bugs. Catches: a label with the path of a request."""
    page = client(Observed("run"))
    before = series(page.get("/metrics").text)
    assert {page.get(f"/nothing/{number}").status_code for number in range(20)} == {404}
    assert series(page.get("/metrics").text) == before


def test_a_process_ends_though_calls_of_tools_were_abandoned() -> None:
    """Row 49 of public bugs. Catches: threads of tools, or an event loop, that the interpreter waits for."""
    code = (
        "import asyncio, threading\n"
        "from octopus.rollout.calls import Calls\n"
        "from octopus.rollout.tools import Tool\n"
        "def stuck(text: str) -> str:\n    threading.Event().wait()\n"
        "async def asleep(text: str) -> str:\n    await asyncio.sleep(1000)\n"
        "calls = Calls()\n"
        "for call in [calls.start(Tool(one), 'x') for one in [stuck, asleep] * 5]:\n    calls.abandon(call)\n"
        "print('left')\n"
    )
    began_s = time.monotonic()
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=20, check=False)
    assert (done.returncode, done.stdout) == (0, "left\n") and time.monotonic() - began_s < 10


def test_saves_hold_what_was_and_differ(tmp_path: Path) -> None:
    """Rows 54 and 55 of public bugs. Catches: a save of living tensors, and one that is made once and given again."""
    model = torch.nn.Linear(4, 3)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    written, held = [], []
    for step in (1, 2):
        held.append(model.weight.detach().clone())
        written.append(saves.save(tmp_path, step=step, model=model, optimizer=optimizer, run="a"))
        with torch.no_grad():
            model.weight.add_(1.0)
    for path, expected in zip(written, held, strict=True):
        saves.load(saves.check(path), model=model, optimizer=optimizer, run="a")
        assert torch.equal(model.weight, expected)
    assert not torch.equal(*held)


def test_every_row_of_the_page_names_tests_that_exist() -> None:
    """Catches: a test that was renamed or deleted, and a row without one."""
    rows = [line for line in PAGE.read_text().splitlines() if line.startswith("| ") and "our tests" not in line]
    assert len(rows) > 28
    for row in rows:
        named = re.findall(r"`(tests/\w+/\w+\.py)::(test_\w+)`", row.rpartition(" | ")[2])
        assert named and len(named) == row.count("::"), row
        for file, test in named:
            assert re.search(rf"^def {test}\(", (ROOT / file).read_text(), flags=re.MULTILINE), f"{file}::{test}"
