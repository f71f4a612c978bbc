"""Writes ops/dashboard.json, what Grafana shows of runs, from scripts/dashboard.toml."""

from __future__ import annotations

import json
import tomllib
from collections.abc import Iterator
from itertools import groupby
from pathlib import Path
from typing import Any

SOURCE_FILE = Path(__file__).parent / "dashboard.toml"
TARGET = Path(__file__).parent.parent / "ops" / "dashboard.json"
SCHEMA_VERSION = 39
COLUMNS, WIDTH, HEIGHT = 3, 8, 7  # Of Grafana's 24 columns.
CHOSEN = 'job=~"$job", instance=~"$instance"'
SOURCE = {"type": "prometheus", "uid": "$datasource"}


def expression(short: str) -> str:
    """PromQL, with Grafana's variables."""
    whole = short.replace("{, ", f"{{{CHOSEN}, ").replace("{}", f"{{{CHOSEN}}}")
    return whole.replace("[]", "[$__rate_interval]")


def panels() -> Iterator[dict[str, Any]]:
    """Rows and panels, as Grafana has them."""
    table = tomllib.loads(SOURCE_FILE.read_text())["panel"]
    top, number = 0, 0
    for title, group in groupby(table, key=lambda panel: panel["row"]):
        number += 1
        place = {"h": 1, "w": COLUMNS * WIDTH, "x": 0, "y": top}
        yield {
            "id": number,
            "type": "row",
            "title": title,
            "collapsed": False,
            "gridPos": place,
            "panels": [],
        }
        top += 1
        row = list(group)
        for index, panel in enumerate(row):
            number += 1
            x, y = WIDTH * (index % COLUMNS), top + HEIGHT * (index // COLUMNS)
            yield {"id": number, "gridPos": {"h": HEIGHT, "w": WIDTH, "x": x, "y": y}, **drawn(panel)}
        top += HEIGHT * -(-len(row) // COLUMNS)


def drawn(panel: dict[str, Any]) -> dict[str, Any]:
    """A panel without its place."""
    targets = [
        {"refId": chr(ord("A") + place), "datasource": SOURCE, "expr": expression(line), "legendFormat": name}
        for place, (line, name) in enumerate(panel["lines"])
    ]
    return {
        "type": "timeseries",
        "title": panel["title"],
        "description": panel["about"],
        "datasource": SOURCE,
        "fieldConfig": {"defaults": {"unit": panel["unit"]}, "overrides": []},
        "options": {
            "tooltip": {"mode": "multi"},
            "legend": {"displayMode": "list", "placement": "bottom", "showLegend": True},
        },
        "targets": targets,
    }


def variable(name: str, label: str, query: str) -> dict[str, Any]:
    """What a viewer chooses from values of a label."""
    return {
        "name": name, "label": label, "type": "query", "datasource": SOURCE, "refresh": 2,
        "query": {"query": query, "refId": name}, "definition": query,
        "multi": True, "includeAll": True, "allValue": ".*", "current": {"text": "All", "value": "$__all"},
    }  # fmt: skip


def dashboard() -> dict[str, Any]:
    """The whole of it. No identity of one Grafana is in it: its source of data is chosen."""
    source = {"name": "datasource", "label": "Data source", "type": "datasource", "query": "prometheus"}
    of_job = variable("job", "Job", "label_values(octopus_build_info, job)")
    of_instance = variable("instance", "Instance", 'label_values(octopus_build_info{job=~"$job"}, instance)')
    return {
        "id": None,
        "uid": "octopus-runs",
        "title": "Octopus",
        "description": "Runs that octopus serve serves.",
        "tags": ["octopus"],
        "schemaVersion": SCHEMA_VERSION,
        "version": 1,
        "editable": True,
        "graphTooltip": 1,
        "refresh": "30s",
        "time": {"from": "now-1h", "to": "now"},
        "templating": {"list": [source, of_job, of_instance]},
        "annotations": {"list": []},
        "panels": list(panels()),
    }


def main() -> None:
    """Writes the file."""
    TARGET.write_text(json.dumps(dashboard(), indent=2) + "\n")


if __name__ == "__main__":
    main()
