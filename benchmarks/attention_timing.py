"""Times of a forward and a backward pass, with a pause before each, and without.

Under seconds of full load the card lowers its clock, so a figure hangs on what ran just before. The figures compared
are medians of single runs, each after a pause of one length for everybody; those without a pause stand beside them.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
import torch

PAUSE_S = 0.3
RUNS = 5


@dataclass(frozen=True, kw_only=True)
class Times:
    """Medians in milliseconds; `sustained_` ones from runs without a pause."""

    forward_ms: float
    backward_ms: float
    sustained_forward_ms: float
    sustained_backward_ms: float
    peak_gib: float

    @property
    def total_ms(self) -> float:
        """Forward and backward."""
        return self.forward_ms + self.backward_ms


@dataclass(frozen=True, kw_only=True)
class Line:
    """A straight line through points, by least squares.

    Attributes:
        start: Its value at 0.
        slope: What it gains by 1.
        fit: R^2, the share of the points' variance that it explains.
    """

    start: float
    slope: float
    fit: float

    @classmethod
    def through(cls, x: Sequence[float], y: Sequence[float]) -> Line:
        """The line through two points or more, not all of one height."""
        slope, start = np.polyfit(x, y, 1).tolist()
        off = np.asarray(y) - slope * np.asarray(x) - start
        return cls(start=start, slope=slope, fit=1 - float(np.square(off).sum() / np.square(y - np.mean(y)).sum()))

    def at(self, x: float) -> float:
        """Its value at `x`."""
        return self.start + self.slope * x


def measure(
    forward: Callable[[], object], backward: Callable[[], object], cuda: bool, pause_s: float = PAUSE_S
) -> Times:
    """Runs both, twice to warm up, then `RUNS` times each way."""
    if cuda:
        torch.cuda.reset_peak_memory_stats()
    for _ in range(2):
        forward()
        backward()
    paused = [median_ms(run, cuda, pause_s=pause_s if cuda else 0) for run in (forward, backward)]
    sustained = [median_ms(run, cuda, pause_s=0) for run in (forward, backward)]
    return Times(
        forward_ms=paused[0],
        backward_ms=paused[1],
        sustained_forward_ms=sustained[0],
        sustained_backward_ms=sustained[1],
        peak_gib=torch.cuda.max_memory_allocated() / 2**30 if cuda else 0.0,
    )


def median_ms(run: Callable[[], object], cuda: bool, *, pause_s: float) -> float:
    """Median over `RUNS` runs: events on the GPU, the clock elsewhere."""
    times = []
    for _ in range(RUNS):
        time.sleep(pause_s)
        if cuda:
            torch.cuda.synchronize()
            start, stop = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
            start.record()
            run()
            stop.record()
            torch.cuda.synchronize()
            times.append(start.elapsed_time(stop))
        else:
            began = time.perf_counter()
            run()
            times.append(1e3 * (time.perf_counter() - began))
    return statistics.median(times)
