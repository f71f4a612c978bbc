"""Packed attention over many small slices: batched, and with every slice as a batch of its own.

First compares both ways with the reference in float64, on smaller packs of the same kinds; then times them. Prints one
JSON object a line; times are medians in milliseconds for one layer, index made beforehand.

    python benchmarks/sliced_small.py --device cpu
"""

from __future__ import annotations

import argparse
import json
import platform
import statistics
import time
from datetime import UTC, datetime

import numpy as np
import torch
from torch import Tensor

from octopus.attention import slice_batches
from octopus.attention.plan import Plan, lower
from octopus.attention.reference import attend_reference
from octopus.attention.rope import Rope
from octopus.attention.sliced import attend_sliced
from octopus.core.graph import Graph

HEADS, KV_HEADS, HEAD_DIM = 4, 2, 32
REPEATS = 15


def scripted(episodes: int) -> Plan:
    """Root of 40 tokens, 3 branches of 40, the root reads all and writes 20 more. 180 tokens an episode."""
    graph = Graph()
    for _ in range(episodes):
        root = graph.thread()
        graph.append(root, [0] * 40)
        branches = graph.fork(root, 3)
        for branch in branches:
            graph.append(branch, [0] * 40)
        for branch in branches:
            graph.read_thread(root, branch)
        graph.append(root, [0] * 20)
    return lower(graph.segments)


def ragged(episodes: int) -> Plan:
    """Segments of 1 to 100 tokens: one or two rounds of 2 to 4 branches that may read the first, and a join."""
    rng = np.random.default_rng(0)
    graph = Graph()

    def tokens() -> list[int]:
        return [0] * int(rng.integers(1, 101))

    for _ in range(episodes):
        root = graph.thread()
        graph.append(root, tokens())
        for _ in range(int(rng.integers(1, 3))):
            branches = graph.fork(root, int(rng.integers(2, 5)))
            for branch in branches:
                graph.append(branch, tokens())
            for branch in branches[1:]:
                if rng.random() < 0.5:
                    graph.read_thread(branch, branches[0])
                    graph.append(branch, tokens())
            for branch in branches:
                graph.read_thread(root, branch)
            graph.append(root, tokens())
    return lower(graph.segments)


def causal(length: int) -> Plan:
    """One thread."""
    graph = Graph()
    graph.append(graph.thread(), [0] * length)
    return lower(graph.segments)


def inputs(plan: Plan, device: str, dtype: torch.dtype) -> tuple[list[Tensor], Tensor, dict[str, object]]:
    """Queries, keys and values; a gradient for the output; the options."""
    torch.manual_seed(0)
    shapes = [(count, plan.length, HEAD_DIM) for count in (HEADS, KV_HEADS, KV_HEADS, HEADS)]
    *qkv, d_out_HTD = (torch.randn(shape, dtype=torch.float64).to(device, dtype) for shape in shapes)
    exponents_R = torch.arange(0, HEAD_DIM, 2, dtype=torch.float64, device=device) / HEAD_DIM
    rope = Rope(inverse_frequencies_R=10_000.0**-exponents_R)
    return (
        [x.requires_grad_() for x in qkv],
        d_out_HTD,
        {"plan": plan, "rope": rope, "scale": HEAD_DIM**-0.5},
    )


def check(plan: Plan, device: str) -> None:
    """Outputs and gradients to 1e-11 in float64."""
    qkv, d_out_HTD, options = inputs(plan, device, torch.float64)
    results = []
    for attend in (attend_reference, attend_sliced):
        out_HTD, lse_HT = attend(*qkv, **options)
        results.append([out_HTD, lse_HT, *torch.autograd.grad(out_HTD, qkv, d_out_HTD)])
    for found, expected in zip(*results, strict=True):
        torch.testing.assert_close(found, expected, rtol=0, atol=1e-11)


def times(plan: Plan, device: str) -> dict[str, float]:
    """Median milliseconds of the forward and of the backward pass in float32."""
    qkv, d_out_HTD, options = inputs(plan, device, torch.float32)

    def now_ms() -> float:
        if device == "cuda":
            torch.cuda.synchronize()
        return 1e3 * time.perf_counter()

    laps: dict[str, list[float]] = {"forward_ms": [], "backward_ms": []}
    for _ in range(REPEATS + 2):
        start = now_ms()
        out_HTD, _ = attend_sliced(*qkv, **options)
        middle = now_ms()
        torch.autograd.grad(out_HTD, qkv, d_out_HTD)
        laps["forward_ms"].append(middle - start)
        laps["backward_ms"].append(now_ms() - middle)
    return {metric: statistics.median(values[2:]) for metric, values in laps.items()}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--device", choices=["cpu", "cuda"], default="cpu")
    device = parser.parse_args().device
    torch.set_num_threads(1)
    about = {
        "device": torch.cuda.get_device_name() if device == "cuda" else f"{platform.machine()}, 1 thread",
        "versions": {"python": platform.python_version(), "torch": torch.__version__},
        "date": datetime.now(UTC).date().isoformat(),
        "command": f"python benchmarks/sliced_small.py --device {device}",
    }
    # Slices of more pairs than the bound are batches of their own.
    bounds = {"batched": slice_batches.SMALL_PAIRS, "one-by-one": 0}
    for kind, size, small_size in ((scripted, 64, 3), (ragged, 64, 2), (causal, 2_000, 300)):
        for variant, bound in bounds.items():
            slice_batches.SMALL_PAIRS = bound
            check(kind(small_size), device)
            for metric, value in times(kind(size), device).items():
                line = {"benchmark": "sliced-small", "case": f"{kind.__name__}-{size}", "variant": variant}
                print(json.dumps({**line, "metric": metric, "value": round(value, 2), "unit": "ms", **about}))


if __name__ == "__main__":
    main()
