"""Packed attention over a plan: right first, then fast, beside every rival in the same run.

Prints and appends one JSON object a figure; the last lines say which bounds hold. Exit code 1 if a gate is red, a rival
is missing or a bound does not hold. A variant whose gate is red is not timed.

    PYTHONPATH=.:tests/attention python benchmarks/attention.py --json benchmarks/results/attention.jsonl
    PYTHONPATH=.:tests/attention python benchmarks/attention.py --device cpu --scale 256  # a rehearsal
"""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Callable
from functools import partial
from typing import Any

import attention_rivals as rivals
import numpy as np
import torch
from attention_cases import QUERY_HEADS, plan_of, scaling_runs, text_row_lengths, without_shifts
from attention_gate import Data, draw, errors, gate_plans, poison, repeats
from attention_timing import PAUSE_S, Line, Times, measure, median_ms
from figures import Figures, command_line
from numeric import causal_plan, random_plan

from octopus.attention.backends import attend, available_backends
from octopus.attention.plan import Plan, lower

PARTS = ("ceilings", "gate", "paper", "flex", "shapes", "rows", "scaling")
GPU_BACKENDS = ("cudnn", "sliced-fa4", "sliced-cudnn", "triton", "sliced-fa2")
SHORT_PAUSE_S = 0.05  # Of the scaling runs, which take milliseconds.
DENSE_CALLS = {"sliced-cudnn", "sliced-fa2"}  # Not for shapes of many small slices.
DENSE_ROW = 16_384
RUNNERS_UP = {"sliced-fa2"}  # For older GPUs: gated, and timed once.


class Run:
    """One run: its figures, and what is known so far."""

    def __init__(self, options: argparse.Namespace) -> None:
        self.options = options
        self.cuda = options.device == "cuda"
        self.backends = tuple(options.backends.split(",")) if self.cuda else ("sliced",)
        self.dtype = torch.bfloat16 if self.cuda else torch.float32
        self.figures = Figures("attention", options.device, command_line(), options.json)
        self.totals: dict[tuple[str, str], Times] = {}
        self.rates: dict[tuple[str, str], tuple[float, float]] = {}  # TFLOP/s of the forward and the backward pass.
        self.plan_ms: dict[tuple[str, str], float] = {}
        self.rows_ms: dict[str, float] = {}
        self.gated: set[str] = set(self.backends)

    def data(self, plan: Plan, head_dim: int, kv_heads: int = 4, *, rotated: bool) -> Data:
        """Random data for a plan."""
        return draw(plan, head_dim, kv_heads, self.options.device, rotated=rotated, dtype=self.dtype)

    def time(
        self,
        case: str,
        variant: str,
        pair: Callable[[], tuple[Any, Any]],
        work: float,
        note: str = "",
        pause_s: float = PAUSE_S,
    ) -> None:
        """Times one variant of a case; `work` is the forward's floating-point operations on visible pairs."""
        times = measure(*pair(), self.cuda, pause_s)
        self.totals[case, variant] = times
        say = partial(self.figures.say, case, variant=variant, note=note)
        say("forward_ms", round(times.forward_ms, 3), "ms")
        say("backward_ms", round(times.backward_ms, 3), "ms")
        say("sustained_forward_ms", round(times.sustained_forward_ms, 3), "ms")
        say("sustained_backward_ms", round(times.sustained_backward_ms, 3), "ms")
        rates = work / times.forward_ms / 1e9, 2.5 * work / times.backward_ms / 1e9
        self.rates[case, variant] = rates
        say("forward_tflops", round(rates[0], 1), "TFLOP/s on visible pairs")
        say("backward_tflops", round(rates[1], 1), "TFLOP/s on visible pairs")
        say("peak_gib", round(times.peak_gib, 2), "GiB")
        if self.cuda:
            torch.cuda.empty_cache()

    def ours(self, case: str, data: Data, backend: str, pause_s: float = PAUSE_S) -> None:
        """Times one of our backends through the public call, rotation and copies included; plan build apart."""
        if backend not in self.gated:
            return
        leaves = [x.detach().requires_grad_() for x in data.inputs[:3]]
        call = partial(attend, plan=data.plan, rope=data.rope, scale=data.scale, backend=backend)
        began = time.perf_counter()
        out, _ = call(*leaves)
        torch.autograd.grad(out, leaves, data.inputs[3], retain_graph=True)
        self._synchronize()
        data.plan.memo.clear()
        again = time.perf_counter()
        call(*(x.detach() for x in leaves))
        self._synchronize()
        after = time.perf_counter()
        forward_ms = median_ms(lambda: call(*(x.detach() for x in leaves)), self.cuda, pause_s=0)
        plan_ms = max(0.0, 1e3 * (after - again) - forward_ms)
        self.plan_ms[case, f"octopus-{backend}"] = plan_ms
        self.figures.say(case, "plan_ms", round(plan_ms, 2), "ms, once a pack", variant=f"octopus-{backend}")
        self.figures.say(case, "first_call_s", round(again - began, 2), "s", variant=f"octopus-{backend}")

        def backward() -> object:
            return torch.autograd.grad(out, leaves, data.inputs[3], retain_graph=True)

        note = "rotation not included" if data.rope is None else "rotation included"
        self.time(case, f"octopus-{backend}", lambda: (lambda: call(*leaves), backward), work(data), note, pause_s)

    def rival(self, case: str, variant: str, pair: Callable[[], tuple[Any, Any]], work: float) -> None:
        """Times somebody else's way. All are required: one that is missing or does not run is a red gate."""
        try:
            self.time(case, variant, pair, work, "rotation not included, shifts left out")
        except (ImportError, RuntimeError, TypeError, ValueError) as error:
            self.figures.gate(case, f"{variant} runs", False, f"{type(error).__name__}: {str(error)[:300]}")

    def _synchronize(self) -> None:
        if self.cuda:
            torch.cuda.synchronize()


def work(data: Data) -> float:
    """Floating-point operations of the forward pass on visible pairs."""
    heads, _, head_dim = data.inputs[0].shape
    return 4.0 * data.plan.pairs * heads * head_dim


def ceilings(run: Run) -> None:
    """A matrix product of 8,192 cubed: what the card reaches at most."""
    side = 8_192 if run.cuda else 512
    a, b = (torch.randn(side, side, device=run.options.device, dtype=run.dtype) for _ in range(2))
    ms = median_ms(lambda: a @ b, run.cuda, pause_s=0)
    run.figures.say("ceiling", "matmul_tflops", round(2 * side**3 / ms / 1e9, 1), "TFLOP/s", variant="torch")


def gate(run: Run) -> None:
    """Every backend, before any is timed."""
    small = not run.cuda
    for backend in run.backends:
        if backend not in available_backends():
            run.figures.gate("gate", f"{backend} is available", False)
            run.gated.discard(backend)
            continue
        checks = []
        for head_dim, kv_heads in ((256, 4), (128, 4), (64, 16)):
            for name, plan, rotated in gate_plans(small):
                if head_dim == 64 and not name.startswith("random"):
                    continue
                data = run.data(plan, head_dim, kv_heads, rotated=rotated)
                checks.append(errors(f"{name}/d{head_dim}", data, backend))
        blind = random_plan(2, segments=12, longest=60)
        checks += [poison(run.data(blind, d, rotated=True), backend) for d in (128, 256)]
        if backend in ("triton", "cudnn", "sliced-fa4", "sliced"):
            paper = plan_of("paper-143k", 16 if run.cuda else 256)
            checks.append(repeats(run.data(paper, 128, rotated=True), backend, 50 if run.cuda else 3))
        for check in checks:
            run.figures.gate(f"gate/{check.name}", backend, check.holds, check.found)
        if not all(check.holds for check in checks):
            run.gated.discard(backend)


def paper(run: Run) -> None:
    """`paper-143k` in every head dimension, with and without shifts and shared heads."""
    plan = plan_of("paper-143k", run.options.scale)
    plain = without_shifts(plan)
    for head_dim in (128, 256, 64):
        for backend in run.backends if head_dim != 64 else run.backends[:1]:
            if backend in RUNNERS_UP and head_dim != 128:
                continue
            run.ours(f"paper-143k/d{head_dim}", run.data(plain, head_dim, rotated=False), backend)
            run.ours(f"paper-143k-shifted/d{head_dim}", run.data(plan, head_dim, rotated=True), backend)
            if backend == "triton":
                row = causal_plan(DENSE_ROW // run.options.scale)
                run.ours(f"dense-16k/d{head_dim}", run.data(row, head_dim, rotated=False), backend)
        data = run.data(plain, head_dim, rotated=False)
        if run.cuda and head_dim != 64:
            run.rival(f"paper-143k/d{head_dim}", "cudnn-frontend", lambda d=data: rivals.interval(d), work(data))
            dense = 4.0 * QUERY_HEADS * head_dim * DENSE_ROW * (DENSE_ROW + 1) / 2
            run.rival(f"dense-16k/d{head_dim}", "fa4", lambda d=data: rivals.dense_fa4(DENSE_ROW, d), dense)
            run.rival(f"dense-16k/d{head_dim}", "sdpa-cudnn", lambda d=data: rivals.sdpa_row(DENSE_ROW, d), dense)
    for head_dim in (128, 256):  # As many key/value heads as query heads.
        run.ours(f"paper-143k-mha/d{head_dim}", run.data(plan, head_dim, QUERY_HEADS, rotated=True), run.backends[0])


def flex(run: Run) -> None:
    """FlexAttention, where it has a valid configuration."""
    for shape, head_dim in (("paper-143k", 256), ("paper-143k", 128), ("wide", 256), ("deep", 256)):
        case = f"{shape}/d{head_dim}"
        data = run.data(without_shifts(plan_of(shape, run.options.scale)), head_dim, rotated=False)
        torch._dynamo.reset()
        try:
            run.time(case, "flex-attention", lambda d=data: rivals.flex(d), work(data), "shifts left out")
        except (RuntimeError, torch._dynamo.exc.TorchRuntimeError) as error:
            why = f"no valid configuration: {str(error)[:200]}"
            run.figures.say(case, "forward_ms", why, "", variant="flex-attention")
            if head_dim == 256:  # With 128 it has none on Hopper with this Triton: out of shared memory.
                run.figures.gate(case, "flex-attention runs", False, why)


def shapes(run: Run) -> None:
    """The ragged, the wide and the deep shape."""
    for shape in run.options.shapes.split(","):
        plan = plan_of(shape, run.options.scale)
        for head_dim in (128, 256):
            for backend in (name for name in run.backends if name not in DENSE_CALLS):
                run.ours(f"{shape}/d{head_dim}", run.data(plan, head_dim, rotated=True), backend)
            if run.cuda:
                data = run.data(without_shifts(plan), head_dim, rotated=False)
                run.rival(f"{shape}/d{head_dim}", "cudnn-frontend", lambda d=data: rivals.interval(d), work(data))


def scaling(run: Run) -> None:
    """Time against visible pairs; rows of text beside it."""
    found = []
    for point in scaling_runs():
        plan = lower(point.segments())
        data = run.data(plan, 128, rotated=True)
        run.ours(point.name, data, run.backends[0], pause_s=SHORT_PAUSE_S)
        run.figures.say(point.name, "pairs", plan.pairs, "visible pairs", variant="plan")
        if not point.skewed and point.edges == min(1, point.branches - 1):
            lengths = text_row_lengths(plan)
            total = sum(_row_ms(run, n, data) * lengths.count(n) for n in set(lengths))
            run.figures.say(point.name, "total_ms", round(total, 2), "ms", variant="rows-sdpa-cudnn")
        times = run.totals.get((point.name, f"octopus-{run.backends[0]}"))
        if times:
            found.append((point, plan.pairs, times.total_ms))
    equal = [(pairs, ms) for point, pairs, ms in found if not point.skewed]
    if not equal:
        return
    line = Line.through(*zip(*equal, strict=True))
    run.figures.bound("scaling", "R^2 of time against pairs", line.fit, "1", at_least=0.98)
    for point, pairs_, ms_ in found:
        if point.skewed:
            like = next(x for x in found if x[0].branches == point.branches and x[0].edges == 1 and not x[0].skewed)
            ratio = (ms_ / pairs_) / (like[2] / like[1])
            run.figures.bound(point.name, "time a pair, of equal branches'", ratio, "1", at_most=1.15)


def rows(run: Run) -> None:
    """Every thread's text as a row of its own, cuDNN."""
    for shape, head_dim in (("paper-143k", 128), ("paper-143k", 256), ("wide", 256), ("deep", 256)):
        plan = plan_of(shape, run.options.scale)
        lengths = text_row_lengths(plan)
        data = run.data(plan, head_dim, rotated=False)
        # Of many different lengths every eighth is timed; time is interpolated between them in length squared.
        distinct = sorted(set(lengths))
        chosen = distinct if len(distinct) <= 4 else sorted({*distinct[::8], distinct[-1]})
        each = []
        for length in chosen:
            forward, backward = rivals.sdpa_row(length, data)
            ways = {"forward_ms": forward, "backward_ms": backward}
            each.append({name: median_ms(way, run.cuda, pause_s=PAUSE_S) for name, way in ways.items()})
        case = f"{shape}/d{head_dim}"
        for metric in ("forward_ms", "backward_ms"):
            known = [times[metric] for times in each]
            total = float(np.interp(np.square(lengths), np.square(chosen), known).sum())
            run.figures.say(case, metric, round(total, 2), "ms", variant="rows-sdpa-cudnn")
            run.rows_ms[case] = run.rows_ms.get(case, 0.0) + total


def bounds(run: Run) -> None:
    """What is promised, for the cases of this run."""
    best: dict[str, float] = {}
    for (case, variant), times in run.totals.items():
        if variant.startswith("octopus") and variant != "octopus-triton":
            best[case] = min(best.get(case, np.inf), times.total_ms)
    if run.options.scale == 1:
        limits = {"/d256": (700, 740), "/d128": (235, 250)}
        for end, (plain, shifted) in limits.items():
            for case, limit in ((f"paper-143k{end}", plain), (f"paper-143k-shifted{end}", shifted)):
                if case in best:
                    run.figures.bound(case, "forward and backward", best[case], "ms", at_most=limit)
    other = run.totals.get(("paper-143k/d256", "flex-attention"))
    if other and "paper-143k/d256" in best:
        ratio = other.total_ms / best["paper-143k/d256"]
        run.figures.bound("paper-143k/d256", "times faster than FlexAttention", ratio, "1", at_least=2.4)
    for head_dim in (128, 256):
        one, two = f"ragged-143k/d{head_dim}", f"paper-143k-shifted/d{head_dim}"
        if one in best and two in best:
            pairs = [plan_of(shape, run.options.scale).pairs for shape in ("ragged-143k", "paper-143k")]
            ratio = (best[one] / pairs[0]) / (best[two] / pairs[1])
            run.figures.bound(one, "time a pair, of paper-143k's", ratio, "1", at_most=1.2)
    kernel_bounds(run)


def kernel_bounds(run: Run) -> None:
    """What is promised of our own kernels alone."""
    name, paper_128, paper_256 = "octopus-triton", "paper-143k/d128", "paper-143k/d256"
    ours, flex_ = run.totals.get((paper_256, name)), run.totals.get((paper_256, "flex-attention"))
    if ours and flex_:
        ratio = flex_.total_ms / ours.total_ms
        run.figures.bound(paper_256, "times faster than FlexAttention", ratio, "1", at_least=1.5, variant=name)
    rates, dense = run.rates.get((paper_128, name)), run.rates.get(("dense-16k/d128", name))
    if rates and dense:
        for which, rate, limit, alone in zip(("forward", "backward"), rates, (350, 220), dense, strict=True):
            run.figures.bound(paper_128, f"{which} rate", rate, "TFLOP/s", at_least=limit, variant=name)
            run.figures.bound(
                paper_128, f"{which} rate, of a dense row's", rate / alone, "1", at_least=0.85, variant=name
            )
    for case in (f"{shape}/d{head_dim}" for shape in ("wide", "deep") for head_dim in (128, 256)):
        others = [times.total_ms for (at, who), times in run.totals.items() if at == case and "octopus" not in who]
        others += [run.rows_ms[case]] if case in run.rows_ms else []
        if others and (case, name) in run.totals:
            ratio = min(others) / (run.totals[case, name].total_ms + run.plan_ms[case, name])
            what = "times faster than the best rival, plan included"
            run.figures.bound(case, what, ratio, "1", at_least=1.0, variant=name)


def _row_ms(run: Run, length: int, data: Data) -> float:
    forward, backward = rivals.sdpa_row(length, data)
    return sum(median_ms(way, run.cuda, pause_s=0) for way in (forward, backward))


def main() -> int:
    """Runs the chosen parts."""
    parser = argparse.ArgumentParser(description="Measure packed attention.")
    parser.add_argument("--device", default="cuda", choices=("cuda", "cpu"))
    parser.add_argument("--scale", type=int, default=1, help="divides the lengths of the timed shapes")
    parser.add_argument("--parts", default=",".join(PARTS), help="some of " + ", ".join(PARTS))
    parser.add_argument("--backends", default=",".join(GPU_BACKENDS), help="ours, the first also for scaling")
    parser.add_argument("--shapes", default="ragged-143k,wide,deep", help="which ones the part `shapes` times")
    parser.add_argument("--json", help="file to append the figures to")
    options = parser.parse_args()
    chosen = options.parts.split(",")
    if unknown := set(chosen) - set(PARTS):
        parser.error(f"--parts takes {', '.join(PARTS)}, not {', '.join(sorted(unknown))}")
    run = Run(options)
    torch.manual_seed(0)
    for part in PARTS:
        if part in chosen:
            began = time.perf_counter()
            globals()[part](run)
            print(f"# {part}: {time.perf_counter() - began:.0f} s", file=sys.stderr, flush=True)
    bounds(run)
    for reason in run.figures.red:
        print(f"RED {reason}", file=sys.stderr)
    return 1 if run.figures.red else 0


if __name__ == "__main__":
    sys.exit(main())
