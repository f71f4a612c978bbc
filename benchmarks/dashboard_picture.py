"""Draws every panel of ops/dashboard.json from what Prometheus has recorded of a run: docs/dashboard.png.

    PYTHONPATH=.:tests:tests/train python benchmarks/dashboard_picture.py

The run is the example's job, made small, with too few pages for its episodes, so that the memory ladder has work. An
episode is cancelled, and in the middle the run is told to pause and to save.
"""

from __future__ import annotations

import argparse
import tempfile
import time
from collections.abc import Mapping, Sequence
from io import BytesIO
from pathlib import Path

import matplotlib as mpl
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import PercentFormatter
from panels import Line, Series, asked, dashboard, lines_of, small_run
from PIL import Image
from test_alerts import prometheus
from test_operating import cancel_one
from test_service import fetch, leaves_on_sigterm, until

TARGET = Path(__file__).parent.parent / "docs" / "dashboard.png"
COLUMNS = 3
PANEL_INCHES = (4.2, 1.9)
WINDOW_S, POINT_S, PAUSE_S = 10, 2, 12
HEADROOM, COLOURS = 1.35, 192
AXES = {"s": "s", "cps": "1/s", "percentunit": "", "short": "", "bytes": "bytes"}

Drawn = Sequence[tuple[Line, Series]]


def recorded(seconds: float) -> Mapping[str, Drawn]:
    """What Prometheus has seen of a run, by panel.

    Raises:
        AssertionError: An expression has no data.
    """
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        with small_run(folder, "grpo.steps=150") as (address, run), prometheus(folder, address) as base:
            until(lambda: fetch(f"{address}/readyz")[0] == 200)
            begin_s = time.time()
            time.sleep(seconds / 4)
            until(lambda: cancel_one(address))
            time.sleep(seconds / 4)
            fetch(f"{address}/pause", "POST")
            fetch(f"{address}/save", "POST")
            time.sleep(PAUSE_S)
            fetch(f"{address}/resume", "POST")
            time.sleep(seconds / 2)
            span = {"begin_s": begin_s, "end_s": time.time(), "step_s": POINT_S}
            lines = list(lines_of(dashboard()))
            answers = {line: asked(base, line, **span, window=f"{WINDOW_S}s") for line in lines}
            assert leaves_on_sigterm(run)
    assert all(answers.values()), [line.expression for line, answer in answers.items() if not answer]
    panels: dict[str, list[tuple[Line, Series]]] = {}
    for line, answer in answers.items():
        panels.setdefault(line.panel, []).extend((line, series.since(begin_s)) for series in answer)
    return panels


def draw(panels: Mapping[str, Drawn]) -> Figure:
    """All panels in the order of the dashboard."""
    mpl.rcParams |= {"font.size": 7, "xtick.labelsize": 6, "ytick.labelsize": 6}
    rows = -(-len(panels) // COLUMNS)
    figure = Figure(figsize=(COLUMNS * PANEL_INCHES[0], rows * PANEL_INCHES[1]), layout="constrained")
    places = figure.subplots(rows, COLUMNS, squeeze=False).flat
    for (title, drawn), axes in zip(panels.items(), places, strict=False):
        panel(axes, title, drawn)
    for axes in list(places):
        axes.set_axis_off()
    return figure


def panel(axes: Axes, title: str, drawn: Drawn) -> None:
    """One of them."""
    for line, series in drawn:
        axes.plot(*zip(*series.points, strict=True), label=series.name(line.legend), linewidth=1)
    unit = drawn[0][0].unit
    axes.set_title(title, loc="left", fontsize=8, fontweight="bold")
    axes.set_ylabel(AXES[unit])
    axes.set_xlabel("s")
    values = [value for _, series in drawn for _, value in series.points]
    axes.set_ylim(min(0.0, *values), HEADROOM * max(values) or 1.0)
    if unit == "percentunit":
        axes.yaxis.set_major_formatter(PercentFormatter(1.0))
    axes.grid(alpha=0.3)
    axes.legend(fontsize=5.5, ncols=3, loc="upper left", frameon=False)


def main() -> None:
    """Records, and writes the picture."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--seconds", type=float, default=120.0, help="how long the run is watched")
    options = parser.parse_args()
    buffer = BytesIO()
    draw(recorded(options.seconds)).savefig(buffer, dpi=110)
    Image.open(buffer).convert("RGB").quantize(COLOURS).save(TARGET, optimize=True)
    print(f"{TARGET.name}: {TARGET.stat().st_size / 1e3:.0f} kB")


if __name__ == "__main__":
    main()
