"""What stands in `ops/` fits what is served, by Prometheus' own tools.

Catches: an alert on a metric that does not exist, that never fires, or fires at rest; one without a paragraph
in the runbook or a case; a page that promtool does not like; counters that Prometheus sees otherwise than the run does.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import socket
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path

import pytest
import yaml
from test_service import FIGURES, client, fetch, leaves_on_sigterm, served, until

from octopus.core.graph import Graph
from octopus.core.pool import PagePool
from octopus.rollout.cancelling import Cancelling
from octopus.train.service.metrics import GAUGES
from octopus.train.service.observed import Observed

ROOT = Path(__file__).parent.parent.parent
OPS = ROOT / "ops"


def tool(name: str) -> str:
    found = shutil.which(name, path=f"{ROOT / '.tools/usr/bin'}:{os.environ['PATH']}")
    assert found, f"expected {name} in PATH or below .tools: `make .tools/usr/bin/promtool` fetches Debian's"
    return found


def promtool(*arguments: str, text: str | None = None) -> str:
    run = subprocess.run([tool("promtool"), *arguments], input=text, capture_output=True, text=True, check=False)
    assert run.returncode == 0, run.stdout + run.stderr
    return run.stdout


def page() -> str:
    observed = Observed("run")
    observed.rollouts(Graph(pages=PagePool(4, page_size=4)), Cancelling())
    observed.step(1, 2, FIGURES | dict.fromkeys(GAUGES, 0.1))
    observed.saved(1)
    return client(observed).get("/metrics").text


def test_promtool_is_content() -> None:
    promtool("check", "config", str(OPS / "prometheus.yml"))
    promtool("check", "rules", "--lint=all", "--lint-fatal", str(OPS / "alerts.yml"))
    promtool("test", "rules", str(OPS / "alerts_test.yml"))
    promtool("check", "metrics", text=page())


def test_alerts_are_about_what_is_served_and_each_is_explained_and_tried() -> None:
    rules = yaml.safe_load((OPS / "alerts.yml").read_text())["groups"][0]["rules"]
    tried = (OPS / "alerts_test.yml").read_text()
    headings = re.findall(r"^## (\w+)$", (ROOT / "docs/runbook.md").read_text(), flags=re.MULTILINE)
    assert headings == [rule["alert"] for rule in rules]
    served = page()
    for rule in rules:
        for name in re.findall(r"octopus_\w+", rule["expr"]):
            assert re.search(rf"^{name}[ {{]", served, flags=re.MULTILINE), f"{rule['alert']}: {name} is not served"
        assert rule["annotations"]["runbook_url"] == f"docs/runbook.md#{rule['alert'].lower()}"
        assert re.search(rf"alertname: {rule['alert']}\n +exp_alerts:\n +- exp_labels", tried), rule["alert"]


@contextmanager
def prometheus(folder: Path, address: str, rules: Path = OPS / "alerts.yml") -> Iterator[str]:
    """The address of a Prometheus that scrapes a service each second."""
    settings = yaml.safe_load((OPS / "prometheus.yml").read_text())
    settings["global"] = {"scrape_interval": "1s", "evaluation_interval": "1s"}
    settings["rule_files"] = [str(rules)]
    settings["scrape_configs"][0]["static_configs"][0]["targets"] = [address.removeprefix("http://")]
    (folder / "prometheus.yml").write_text(yaml.safe_dump(settings))
    listen = f"127.0.0.1:{free_port()}"
    command = [tool("prometheus"), f"--config.file={folder}/prometheus.yml", f"--storage.tsdb.path={folder}/tsdb"]
    with subprocess.Popen([*command, f"--web.listen-address={listen}"], stderr=subprocess.DEVNULL) as run:
        try:
            until(lambda: ready(f"http://{listen}"))
            yield f"http://{listen}"
        finally:
            run.kill()


def instant(base: str, expression: str) -> float | None:
    """What Prometheus says just now; None if it knows no such series."""
    results = json.loads(promtool("query", "instant", "-o", "json", base, expression))
    return float(results[0]["value"][1]) if results else None


def free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as one:
        return one.getsockname()[1]


def test_prometheus_sees_what_the_run_counts(tmp_path: Path) -> None:
    with served(tmp_path) as (address, run), prometheus(tmp_path, address) as base:
        value = partial(instant, base)
        until(lambda: value("up") == 1)
        until(lambda: (value("octopus_run_step") or 0) >= 2)
        fetch(f"{address}/pause", "POST")
        until(lambda: value("octopus_run_paused") == 1 and value('octopus_run_phase{phase="training"}') == 1)
        saves = value("octopus_saves_total")
        fetch(f"{address}/save", "POST")
        until(lambda: value("octopus_saves_total") == (saves or 0) + 1)
        taken = json.loads(fetch(f"{address}/status")[1])["step"]
        until(lambda: value("sum(octopus_train_steps_total)") == taken == value("octopus_last_save_step"))
        assert (value('count({job="octopus"})') or 0) < 300
        assert value("resets(octopus_saves_total[1m])") == 0
        assert leaves_on_sigterm(run)
        until(lambda: value("up") == 0)
        until(lambda: value('ALERTS{alertname="OctopusDown", alertstate="pending"}') == 1)


def ready(base: str) -> bool:
    try:
        return fetch(f"{base}/-/ready")[0] == 200
    except OSError:
        return False


@pytest.mark.parametrize("path", sorted(OPS.iterdir()), ids=lambda path: path.name)
def test_no_file_names_a_person_or_a_machine(path: Path) -> None:
    assert not re.search(r"/(home|root|work|tmp)/|@", path.read_text())
