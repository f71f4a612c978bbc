"""One decode step of attention over a shared pool: right first, then fast, beside every thread reading for itself.

The case: a prefix of 32,768 tokens that all threads share, 1,024 own tokens each, and of 16 siblings the last 512
tokens, each mounted with a shift of its own. 16 query and 4 KV heads of 256, bfloat16, pages of 64. A second pool has
more than 2^31 elements.

    PYTHONPATH=. python benchmarks/decode.py --json benchmarks/results/decode.jsonl
    TRITON_INTERPRET=1 PYTHONPATH=. python benchmarks/decode.py --device cpu --scale 256  # a rehearsal

Exit code 1 if a gate is red or a bound does not hold; a step whose gate is red is not timed.
"""

from __future__ import annotations

import argparse
import statistics
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import torch
from figures import Figures, command_line
from torch import Tensor

from octopus.attention.dag.groups import Sight
from octopus.attention.dag.paged import PagedPass
from octopus.attention.rope import Rope, apply_rope

HEADS, KV_HEADS, DIM, ROTARY, PAGE = 16, 4, 256, 64, 64
PREFIX, OWN, MOUNTED, SIBLINGS = 32_768, 1_024, 512, 16
RUNS = 20


@dataclass(frozen=True, kw_only=True)
class Case:
    """A step: who sees what, where it lies, and the pool.

    Attributes:
        unshared: The same sights, each thread's prefix and mounts under names of their own, so that nothing is grouped.
    """

    sights: list[Sight]
    unshared: list[Sight]
    slots: dict[object, np.ndarray]
    positions_T: np.ndarray
    keys_SGD: Tensor
    values_SGD: Tensor
    rope: Rope

    def slots_of(self, segment: object, start: int, stop: int) -> np.ndarray:
        """Of an unshared name `(thread, segment)` those of the segment."""
        name = segment[1] if isinstance(segment, tuple) else segment
        return self.slots[name][start:stop]

    def lower(self, sights: list[Sight], programs: int) -> PagedPass:
        """The step as our kernels take it."""
        return PagedPass.of(
            sights, self.slots_of, self.positions_T, rope=self.rope, heads=HEADS, kv_heads=KV_HEADS, head_dim=DIM,
            device=self.keys_SGD.device, programs=programs,
        )  # fmt: skip

    @property
    def unique_bytes(self) -> int:
        """Of all keys and values that somebody sees, each once."""
        tokens = sum(len(slots) for slots in self.slots.values())
        return tokens * KV_HEADS * DIM * 2 * self.keys_SGD.element_size()


def build(threads: int, scale: int, device: str, more_pages: int = 0) -> Case:
    """Draws a pool in random page order; pages that nobody sees are NaN."""
    prefix, own, mounted = (max(1, n // scale) for n in (PREFIX, OWN, MOUNTED))
    lengths = {"prefix": prefix, **dict.fromkeys(range(threads), own)}
    counts = [-(-length // PAGE) for length in lengths.values()]
    draw = np.random.default_rng(threads)
    pages = sum(counts) + 4
    order = more_pages + draw.permutation(pages)
    slots = {}
    for (name, length), first, count in zip(lengths.items(), np.cumsum([0, *counts]), counts, strict=False):
        at = order[first : first + count, None] * PAGE + np.arange(PAGE)
        slots[name] = at.ravel()[:length].astype(np.int64)
    dtype = torch.bfloat16 if device == "cuda" else torch.float32
    generator = torch.Generator(device).manual_seed(threads)
    pools = []
    for _ in range(2):
        pool = torch.empty(((more_pages + pages) * PAGE, KV_HEADS, DIM), dtype=dtype, device=device)
        pool[more_pages * PAGE :].fill_(torch.nan)
        for at in slots.values():
            shape = (len(at), KV_HEADS, DIM)
            pool[torch.from_numpy(at).to(device)] = torch.randn(shape, generator=generator, device=device, dtype=dtype)
        pools.append(pool)
    sights, unshared = [], []
    for thread in range(threads):
        end = prefix
        for step in range(1, min(SIBLINGS, threads - 1) + 1):
            sibling = (thread + step) % threads
            shift = end - (prefix + own - mounted)
            sights.append(Sight(sibling, own - mounted, own, shift, thread, 1))
            end += mounted
        sights += [Sight("prefix", 0, prefix, 0, thread, 1), Sight(thread, 0, own, 0, thread, 1, True)]
    unshared = [sight._replace(segment=(sight.row, sight.segment)) for sight in sights]
    exponents = torch.arange(0, ROTARY, 2, dtype=torch.float64, device=device) / ROTARY
    positions_T = np.full(threads, prefix + own + min(SIBLINGS, threads - 1) * mounted)
    return Case(
        sights=sights, unshared=unshared, slots=slots, positions_T=positions_T, keys_SGD=pools[0],
        values_SGD=pools[1], rope=Rope(inverse_frequencies_R=1e7**-exponents),
    )  # fmt: skip


def exact(case: Case, q_HTD: Tensor, row: int) -> Tensor:
    """One row in float64: `out [H, D]`."""
    scores, values = [], []
    for sight in (sight for sight in case.sights if sight.row == row):
        at = torch.from_numpy(case.slots_of(sight.segment, sight.start, sight.stop)).to(q_HTD.device)
        seen_from = torch.tensor([case.positions_T[row] - sight.shift], device=q_HTD.device)
        q_H1D = apply_rope(case.rope, q_HTD[:, row : row + 1].double(), seen_from)
        keys, rows = (pool[at].double().transpose(0, 1).repeat_interleave(HEADS // KV_HEADS, 0)
                      for pool in (case.keys_SGD, case.values_SGD))  # fmt: skip
        scores.append(q_H1D @ keys.mT * DIM**-0.5)
        values.append(rows)
    return (torch.cat(scores, -1).softmax(-1) @ torch.cat(values, 1))[:, 0]


def gate(figures: Figures, name: str, variant: str, case: Case, made: PagedPass, q_HTD: Tensor) -> bool:
    """Against float64 on a few rows, the rest of the pool NaN; and twice the same bits."""
    out, _ = made.attend(q_HTD, case.keys_SGD, case.values_SGD, scale=DIM**-0.5)
    again, _ = made.attend(q_HTD, case.keys_SGD, case.values_SGD, scale=DIM**-0.5)
    rows = sorted({0, 1, q_HTD.shape[1] // 2, q_HTD.shape[1] - 1})
    truth = torch.stack([exact(case, q_HTD, row) for row in rows], 1)
    error = float((out[:, rows].double() - truth).norm() / truth.norm())
    most = 6e-3 if q_HTD.dtype == torch.bfloat16 else 2e-6
    same = torch.equal(out, again)
    holds = bool(out.isfinite().all()) and error <= most and same
    found = f"relative error {error:.1e}, limit {most:.0e}; same bits twice: {same}"
    figures.gate(name, f"{variant} is right", holds, found)
    return holds


def median_us(run: Callable[[], object], device: str) -> float:
    """Median over `RUNS` runs, the cache flushed before each: a layer's keys are not in it when its turn comes."""
    times = []
    flush = torch.empty(2**27 if device == "cuda" else 1, dtype=torch.int32, device=device)
    run()
    for _ in range(RUNS if device == "cuda" else 1):
        flush.zero_()
        if device == "cuda":
            start, stop = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
            torch.cuda.synchronize()
            start.record()
            run()
            stop.record()
            torch.cuda.synchronize()
            times.append(1e3 * start.elapsed_time(stop))
        else:
            began = time.perf_counter()
            run()
            times.append(1e6 * (time.perf_counter() - began))
    return statistics.median(times)


def captured(run: Callable[[], object], device: str) -> Callable[[], object]:
    """The launches as one graph, as a decode loop replays them."""
    if device != "cuda":
        return run
    run()
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        run()
    return graph.replay


def read_bandwidth(device: str) -> float:
    """Bytes a second of a reduction over 4 GiB."""
    x = torch.ones(2**30 if device == "cuda" else 2**20, dtype=torch.float32, device=device)
    return 1e6 * x.numel() * 4 / median_us(lambda: x.sum(), device)


def measure(figures: Figures, threads: int, options: argparse.Namespace, bandwidth: float) -> None:
    """Gates and times one number of threads."""
    device, name = options.device, f"shared-32k-{threads}/d{DIM}"
    case = build(threads, options.scale, device)
    draw = torch.Generator(device).manual_seed(1)
    q_HTD = torch.randn(HEADS, threads, DIM, generator=draw, device=device, dtype=case.keys_SGD.dtype)
    programs = torch.cuda.get_device_properties(0).multi_processor_count if device == "cuda" else 8
    took: dict[str, float] = {}
    for variant, sights in (("octopus", case.sights), ("unshared", case.unshared)):
        began = time.perf_counter()
        made = case.lower(sights, programs)
        plan_ms = 1e3 * (time.perf_counter() - began)
        if not gate(figures, name, variant, case, made, q_HTD):
            return
        run = captured(lambda m=made: m.attend(q_HTD, case.keys_SGD, case.values_SGD, scale=DIM**-0.5), device)
        took[variant] = median_us(run, device)
        note = f"{len(made.tensors['items_I7'])} tiles a KV head; plan built in {plan_ms:.1f} ms, once a step"
        figures.say(name, "attention_us", round(took[variant], 1), "us a layer", variant=variant, note=note)
    limit = {32: 0.75, 64: 0.65}.get(threads, 0.0) if device == "cuda" else 0.0
    share = case.unique_bytes / took["octopus"] * 1e6 / bandwidth
    figures.bound(name, "unique bytes read, of the read bandwidth", share, "1", at_least=limit)
    ratio = took["unshared"] / took["octopus"]
    figures.bound(name, "times faster than unshared", ratio, "1", at_least=8 if limit else 0)


def main() -> int:
    """Runs all."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--device", default="cuda", choices=("cuda", "cpu"))
    parser.add_argument("--scale", type=int, default=1, help="divides every length")
    parser.add_argument("--threads", default="32,64,8")
    parser.add_argument("--json", help="file that the lines are appended to")
    options = parser.parse_args()
    figures = Figures("decode", options.device, command_line(), options.json)
    bandwidth = read_bandwidth(options.device)
    figures.say("ceiling", "read_bandwidth", round(bandwidth / 1e12, 3), "TB/s", variant="torch")
    if options.device == "cuda":
        far = build(4, 16, "cuda", more_pages=2**31 // (PAGE * KV_HEADS * DIM) + 1)
        q_HTD = torch.randn(HEADS, 4, DIM, device="cuda", dtype=torch.bfloat16)
        gate(figures, "pool beyond 2^31 elements", "octopus", far, far.lower(far.sights, 132), q_HTD)
        del far
    for threads in map(int, options.threads.split(",")):
        measure(figures, threads, options, bandwidth)
    for line in figures.red:
        print(f"RED {line}", file=sys.stderr)
    return bool(figures.red)


if __name__ == "__main__":
    sys.exit(main())
