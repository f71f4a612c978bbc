"""The Grafana dashboard in `ops/`: whole, portable, and about what is served.

Catches: a panel on a metric that does not exist, or without data; identities of one Grafana; a window shorter than two
scrapes; a panel that says neither what it shows nor in which unit; a table that was changed and not built.
"""

from __future__ import annotations

import json
import re
import time
from collections.abc import Iterator, Mapping
from itertools import combinations
from pathlib import Path
from typing import Any

import pytest
import yaml
from panels import DASHBOARD, asked, dashboard, lines_of, small_run
from test_alerts import page, prometheus, promtool
from test_operating import cancel_one
from test_service import leaves_on_sigterm

from scripts import build_dashboard

UNITS = {"short", "s", "percentunit", "cps", "bytes"}


def faults(page: Mapping[str, Any]) -> Iterator[str]:
    """What is wrong with a dashboard."""
    if page["id"] is not None or not page["uid"] or not isinstance(page["schemaVersion"], int):
        yield "expected id null, a fixed uid and a version of the schema"
    variables = {one["name"]: one for one in page["templating"]["list"]}
    if variables.keys() != {"datasource", "job", "instance"} or variables["datasource"]["query"] != "prometheus":
        yield "expected the variables datasource, job and instance"
    if set(re.findall(r'"datasource": \{[^}]*"uid": "([^"]*)"', json.dumps(page))) != {"$datasource"}:
        yield "expected no source of data but the chosen one"
    if "${" in json.dumps(page) or len({panel["id"] for panel in page["panels"]}) < len(page["panels"]):
        yield "expected panels with an id each, and nothing that an import fills in"
    for one, other in combinations([panel["gridPos"] for panel in page["panels"]], 2):
        sides = [(a, b, *side) for a, b in ((one, other), (other, one)) for side in (("x", "w"), ("y", "h"))]
        if not any(a[at] + a[size] <= b[at] for a, b, at, size in sides) or one["x"] + one["w"] > 24:
            yield "panels lie on each other"
    for panel in page["panels"]:
        if panel["type"] != "row":
            yield from panel_faults(panel)


def panel_faults(panel: Mapping[str, Any]) -> Iterator[str]:
    """What is wrong with a panel."""
    name = panel["title"]
    if len(panel.get("description", "")) < 8 or panel["fieldConfig"]["defaults"].get("unit") not in UNITS:
        yield f"{name}: expected a description, and a unit of {sorted(UNITS)}"
    if any("datasource" not in target for target in (panel, *panel["targets"])):
        yield f"{name}: expected a source of data"
    for target in panel["targets"]:
        expression = target["expr"]
        selectors = re.findall(r"\{(.*?)\}", expression)
        if not selectors or not all('job=~"$job", instance=~"$instance"' in one for one in selectors):
            yield f"{name}: expected the chosen jobs and instances in {expression}"
        if any(window != "$__rate_interval" for window in re.findall(r"\[(.*?)\]", expression)):
            yield f"{name}: expected $__rate_interval in {expression}"
        counters = re.findall(r"(\w+) ?\(?(octopus_\w+_total)\{", expression)
        if any(function != "rate" for function, _ in counters) or not target["legendFormat"]:
            yield f"{name}: expected rates of counters, and names of lines, in {expression}"


def test_the_dashboard_is_well_made() -> None:
    assert list(faults(dashboard())) == []
    assert json.loads(DASHBOARD.read_text()) == json.loads(json.dumps(build_dashboard.dashboard()))


@pytest.mark.parametrize(
    ("right", "wrong"),
    [
        ('"id": null', '"id": 7'),
        ('"uid": "$datasource"', '"uid": "PBFA97CFB590B2093"'),
        ("$__rate_interval", "5m"),
        ('"unit": "cps"', '"unit": "furlong"'),
        ('"y": 1', '"y": 2'),
        (', instance=~\\"$instance\\"', ""),
        ('"name": "job"', '"name": "task"'),
    ],
)
def test_the_lint_sees_a_fault(right: str, wrong: str) -> None:
    text = DASHBOARD.read_text()
    assert right in text
    assert list(faults(json.loads(text.replace(right, wrong, 1))))


def test_expressions_are_of_prometheus_and_about_what_is_served(tmp_path: Path) -> None:
    lines = list(lines_of(dashboard()))
    rules = [{"record": f"panel:{place}", "expr": line.without_variables()} for place, line in enumerate(lines)]
    (tmp_path / "rules.yml").write_text(yaml.safe_dump({"groups": [{"name": "dashboard", "rules": rules}]}))
    promtool("check", "rules", str(tmp_path / "rules.yml"))
    text = page()
    names = {name for line in lines for name in re.findall(r"\boctopus_\w+", line.expression)}
    assert len(names) > 30
    assert [name for name in sorted(names) if not re.search(rf"^{name}[ {{]", text, flags=re.MULTILINE)] == []


def test_every_expression_returns_data(tmp_path: Path) -> None:
    """Catches: labels that are never served, and two metrics whose labels do not match."""
    with small_run(tmp_path) as (address, run), prometheus(tmp_path, address) as base:
        missing = list(lines_of(dashboard()))
        end_s = time.monotonic() + 120
        while missing and time.monotonic() < end_s:
            time.sleep(0.5)
            cancel_one(address)
            now = {"end_s": time.time(), "begin_s": time.time() - 10}
            missing = [line for line in missing if not asked(base, line, **now, step_s=1, window="5s")]
        assert missing == []
        assert leaves_on_sigterm(run)
