"""Draws what `attention.py` measured: time against visible pairs, and each case beside what the card reaches at most.

    python benchmarks/attention_picture.py benchmarks/results/attention.jsonl benchmarks/results/attention.svg

Of a figure that the file holds more than once the last counts.
"""

from __future__ import annotations

import argparse
import json
import sys
from dataclasses import dataclass
from pathlib import Path

import matplotlib as mpl
from attention_timing import Line
from matplotlib.axes import Axes
from matplotlib.figure import Figure

OURS = "octopus-"
ROWS = "rows-sdpa-cudnn"
PASSES = {"forward": "#1f77b4", "backward": "#d62728"}
BILLION = 1e9


@dataclass(frozen=True, kw_only=True)
class Measured:
    """What a file says of one device.

    Attributes:
        device: Its name.
        values: Figures by case, variant and metric.
    """

    device: str
    values: dict[tuple[str, str, str], float]

    @classmethod
    def read(cls, path: Path) -> Measured:
        """Reads a file of JSON lines.

        Raises:
            ValueError: it holds no attention figures, or those of several devices.
        """
        lines = [line for line in map(json.loads, path.read_text().splitlines()) if line["benchmark"] == "attention"]
        devices = sorted({line["device"] for line in lines})
        if len(devices) != 1:
            found = ", ".join(devices) or "no figures of attention.py"
            raise ValueError(f"{path} must hold figures of attention.py from one device; it holds {found}")
        values = {
            (line["case"], line["variant"], line["metric"]): float(line["value"])
            for line in lines
            if not isinstance(line["value"], str)  # Words stand where somebody's kernel did not run.
        }
        return cls(device=devices[0], values=values)

    @property
    def ceiling(self) -> float:
        """TFLOP/s of a large matrix product."""
        return self._required("ceiling", "torch", "matmul_tflops")

    def scaling(self, kind: str) -> tuple[list[float], list[float]]:
        """Visible pairs, in billions, and milliseconds forward and backward of our runs over `equal` or `skewed`."""
        pairs, ms = [], []
        for (case, variant, metric), forward_ms in self.values.items():
            if case.startswith(f"scaling/{kind}/") and variant.startswith(OURS) and metric == "forward_ms":
                pairs.append(self._required(case, "plan", "pairs") / BILLION)
                ms.append(forward_ms + self._required(case, variant, "backward_ms"))
        return pairs, ms

    def rows(self) -> tuple[list[float], list[float]]:
        """The same for every thread's text as a row of its own, at the pairs of the plan that has the same threads."""
        of_rows = {case: ms for (case, variant, _), ms in self.values.items() if variant == ROWS and "scaling" in case}
        return [self._required(case, "plan", "pairs") / BILLION for case in of_rows], list(of_rows.values())

    def rates(self) -> dict[str, dict[str, float]]:
        """TFLOP/s on visible pairs by pass, for each case and variant but the scaling runs, in the file's order."""
        found: dict[str, dict[str, float]] = {}
        for (case, variant, metric), rate in self.values.items():
            if metric.endswith("_tflops") and metric != "matmul_tflops" and not case.startswith("scaling/"):
                found.setdefault(f"{case}  {variant}", {})[metric.removesuffix("_tflops")] = rate
        return found

    def _required(self, case: str, variant: str, metric: str) -> float:
        if (case, variant, metric) not in self.values:
            raise ValueError(
                f"there is no {metric} of {case}, {variant}: run attention.py with its parts ceilings and scaling"
            )
        return self.values[case, variant, metric]


def draw(measured: Measured) -> Figure:
    """Both pictures side by side."""
    rates = measured.rates()
    figure = Figure(figsize=(13, max(4.5, 1.5 + 0.22 * len(rates))), layout="constrained")
    left, right = figure.subplots(1, 2)
    figure.suptitle(f"Packed attention on {measured.device}")
    _draw_scaling(left, measured)
    _draw_rates(right, rates, measured.ceiling)
    return figure


def _draw_scaling(axes: Axes, measured: Measured) -> None:
    pairs, ms = measured.scaling("equal")
    if len(pairs) < 2:
        raise ValueError(f"a line needs two scaling runs or more, not {len(pairs)}: run attention.py --parts scaling")
    line = Line.through(pairs, ms)
    ends = [0, max(pairs)]
    label = f"{line.start:.2f} ms + {line.slope:.2f} ms a billion pairs, R² {line.fit:.3f}"
    axes.plot(ends, [line.at(x) for x in ends], color="grey", label=label)
    axes.scatter(pairs, ms, gid="equal", label="one row, equal branches")
    axes.scatter(*measured.scaling("skewed"), gid="skewed", marker="^", label="one row, branches 1 : 2 : 4 : 8")
    axes.scatter(*measured.rows(), gid="rows", marker="x", label="a row of text for every thread (cuDNN)")
    axes.set(title="Scaling", xlabel="visible pairs, billions", ylabel="forward and backward, ms")
    axes.set_ylim(bottom=0)
    axes.legend()


def _draw_rates(axes: Axes, rates: dict[str, dict[str, float]], ceiling: float) -> None:
    names = list(rates)[::-1]
    for name, color in PASSES.items():
        known = [(rates[case][name], place) for place, case in enumerate(names) if name in rates[case]]
        axes.scatter([rate for rate, _ in known], [place for _, place in known], gid=name, color=color, label=name)
    axes.axvline(ceiling, color="grey", label=f"matrix product, {ceiling:.0f} TFLOP/s")
    axes.set(title="Roofline", xlabel="TFLOP/s on visible pairs", xlim=(0, 1.05 * ceiling))
    axes.set_yticks(range(len(names)), names, fontsize="x-small")
    axes.grid(axis="y", alpha=0.3)
    axes.set_ylim(-2.5, len(names))  # Room for the legend below the last case.
    axes.legend(loc="lower center", ncols=3)


def main() -> int:
    """Reads, draws, writes."""
    parser = argparse.ArgumentParser(description="Draw the figures of attention.py.")
    parser.add_argument("figures", type=Path, help="the file that attention.py --json wrote")
    parser.add_argument("picture", type=Path, help="the SVG to write")
    options = parser.parse_args()
    # Text stays text, and the same figures give the same file.
    with mpl.rc_context({"svg.fonttype": "none", "svg.hashsalt": "octopus"}):
        draw(Measured.read(options.figures)).savefig(options.picture, format="svg", metadata={"Date": None})
    return 0


if __name__ == "__main__":
    sys.exit(main())
