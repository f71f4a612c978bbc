"""The page store on a device: out-of-memory errors, the pinned host tier, and the price of read checks.

Prints one JSON object a figure; exit code 1 if a gate is red.

    PYTHONPATH=.:tests python benchmarks/store_device.py --device cuda --log store_device.log
"""

from __future__ import annotations

import argparse
import sys
import time
from pathlib import Path

import device_pressure
import device_reads
import device_tier
import torch
from figures import Figures

PARTS = {"pressure": device_pressure.measure, "tier": device_tier.measure, "reads": device_reads.measure}


def main() -> int:
    """Runs the parts."""
    parser = argparse.ArgumentParser(description="Put the page store on a device under pressure.")
    parser.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    parser.add_argument("--small", action="store_true", help="tiny models, to try this file out")
    parser.add_argument("--part", action="append", choices=list(PARTS), help="only this one")
    parser.add_argument("--log", type=Path, help="where events and counters go")
    options = parser.parse_args()
    command = f"python benchmarks/store_device.py --device {options.device}" + " --small" * options.small
    figures = Figures("store_device", options.device, command)
    log = [f"# {command}", ""]
    torch.backends.cuda.matmul.allow_tf32 = False
    for name in options.part or PARTS:
        started = time.perf_counter()
        PARTS[name](figures, options.device, options.small, log)
        figures.say(name, "time", round(time.perf_counter() - started, 2), "s")
        if options.device == "cuda":
            torch.cuda.empty_cache()
    log += [f"red: {red}" for red in figures.red] or ["every gate holds"]
    print("\n".join(log), file=sys.stderr)
    if options.log:
        options.log.write_text("\n".join(log) + "\n")
    return 1 if figures.red else 0


if __name__ == "__main__":
    sys.exit(main())
