"""What the dashboard in `ops/` shows, what Prometheus answers to its expressions, and a run that fills it."""

from __future__ import annotations

import json
import math
import re
import subprocess
import urllib.parse
import urllib.request
from collections.abc import Iterator, Mapping
from contextlib import AbstractContextManager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from serving_process import serving

ROOT = Path(__file__).parent.parent.parent
DASHBOARD = ROOT / "ops" / "dashboard.json"
SMALL = (
    "grpo.questions=1", "grpo.rollouts=4", "grpo.steps=1000", "evaluation.validation_questions=2",
    "evaluation.test_questions=1", "rollout.state_slots=64",
)  # fmt: skip
TIGHT = "rollout.pages=60"  # Of about 100 that four episodes want.


@dataclass(frozen=True, kw_only=True)
class Line:
    """One expression of a panel."""

    panel: str
    unit: str
    expression: str
    legend: str

    def without_variables(self, window: str = "1m") -> str:
        """PromQL as Grafana asks it for all jobs and instances."""
        whole = self.expression.replace("$__rate_interval", window)
        return re.sub(r"\$(job|instance)\b", ".*", whole)


@dataclass(frozen=True, kw_only=True)
class Series:
    """One line of a picture: its labels, and its finite values by Unix time."""

    labels: Mapping[str, str]
    points: list[tuple[float, float]]

    def name(self, legend: str) -> str:
        """The legend with its labels."""
        return re.sub(r"\{\{(\w+)\}\}", lambda found: self.labels.get(found[1], ""), legend)

    def since(self, begin_s: float) -> Series:
        """The same by seconds from then on."""
        return Series(labels=self.labels, points=[(at - begin_s, value) for at, value in self.points])


def dashboard() -> dict[str, Any]:
    return json.loads(DASHBOARD.read_text())


def lines_of(page: Mapping[str, Any]) -> Iterator[Line]:
    """All expressions of a dashboard."""
    for panel in page["panels"]:
        for target in panel.get("targets", ()):
            unit = panel["fieldConfig"]["defaults"]["unit"]
            yield Line(
                panel=panel["title"], unit=unit, expression=target["expr"], legend=target["legendFormat"]
            )


def asked(base: str, line: Line, *, begin_s: float, end_s: float, step_s: float, window: str) -> list[Series]:
    """What a Prometheus answers; only lines with a finite value."""
    what = {"query": line.without_variables(window), "start": begin_s, "end": end_s, "step": step_s}
    with urllib.request.urlopen(
        f"{base}/api/v1/query_range?{urllib.parse.urlencode(what)}", timeout=10
    ) as answer:
        found = json.load(answer)["data"]["result"]
    series = [Series(labels=one["metric"], points=_finite(one["values"])) for one in found]
    return [one for one in series if one.points]


def _finite(values: list[tuple[float, str]]) -> list[tuple[float, float]]:
    return [(at, float(value)) for at, value in values if math.isfinite(float(value))]


def small_run(folder: Path, *settings: str) -> AbstractContextManager[tuple[str, subprocess.Popen[str]]]:
    """The address of the example's job, made small, and its process; killed if it still runs in the end."""
    return serving(ROOT / "examples" / "job.toml", *SMALL, TIGHT, f"run.folder={folder}/run", *settings)
