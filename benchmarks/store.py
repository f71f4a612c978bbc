"""The page store against its rivals, each doing the same operations through its own interface, one after the other.

Octopus runs in this Python, the rivals in an environment of their own, which `make bench-store` builds. All are
required. Writes one JSON object a line and prints a table; figures are medians. How to read it: benchmarks/README.md.

    python benchmarks/store.py --json benchmarks/results/store.jsonl
"""

from __future__ import annotations

import argparse
import json
import platform
import subprocess
import sys
from collections.abc import Iterable
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import numpy as np
import store_octopus
from store_cases import LINES, PATHS

import octopus

HERE = Path(__file__).parent
RIVALS_PYTHON = HERE.parent / ".rivals" / "bin" / "python"
RIVALS = {
    "transformers_ledger": ("transformers-BlockLedger", "transformers-CachePool"),
    "vllm_blocks": ("vllm-BlockPool", "vllm-KVCacheManager", "vllm-KVCacheManager-hashed"),
    "sglang_trees": ("sglang-allocator", "sglang-RadixCache", "sglang-Rust"),
}
"""Adapters in `rivals/`, and the variants whose figures each must deliver."""

HEADLINES = {
    "fork": [f"fork/{line}" for line in LINES],
    "mount": [f"mount/{line}" for line in LINES],
    "match-4096": [f"match-4096/{path}" for path in PATHS],
    "alloc-free": ["alloc-free/256"],
}
"""A case without a slash is the worst of these."""

BOUNDS = {
    ("fork", "us"): 2.0,
    ("mount", "us"): 3.0,
    ("append", "us"): 1.0,
    ("match-4096", "us"): 15.0,
    ("evict-1-of-10000", "us"): 20.0,
    ("alloc-free", "us_per_page"): 0.15,
    ("audit", "us_per_segment"): 10.0,
    ("audit", "us_per_page"): 0.1,
}
"""What Octopus must not exceed, by case and metric, on a quiet machine."""

Line = dict[str, Any]


def octopus_figures() -> list[Line]:
    versions = {"octopus": octopus.__version__, "numpy": np.__version__}
    return [{**figure._asdict(), "versions": versions} for figure in store_octopus.figures()]


def rival_figures(adapter: str) -> list[Line]:
    """What an adapter measures. Exits, saying what to do, if its library is not there or did not do what it should."""
    command = [str(RIVALS_PYTHON), "-W", "ignore", "-m", "rivals", adapter]
    if not RIVALS_PYTHON.exists():
        sys.exit(
            f"no environment for the rivals at {RIVALS_PYTHON.parent.parent}; `make bench-store` builds it"
        )
    ran = subprocess.run(command, cwd=HERE, capture_output=True, text=True, check=False)
    lines = [json.loads(line) for line in ran.stdout.splitlines()] if ran.returncode == 0 else []
    missing = set(RIVALS[adapter]) - {line["variant"] for line in lines}
    if missing:
        what = ", ".join(sorted(missing))
        sys.exit(
            f"{ran.stderr}\nno figures for {what}; what its adapter rivals/{adapter}.py needs is in "
            "rivals/requirements.txt: remove .rivals and run `make bench-store`"
        )
    return lines


def headlines(lines: list[Line]) -> list[Line]:
    """For each variant and each headline case, the worst of the lines that the case stands for."""
    found = []
    for case, parts in HEADLINES.items():
        for variant in dict.fromkeys(line["variant"] for line in lines):
            own = [line for line in lines if line["variant"] == variant and line["case"] in parts]
            if own:
                worst = max(own, key=lambda line: line["value"])
                found.append(
                    {**worst, "case": case, "note": f"worst of {len(own)}: {worst['case']}; {worst['note']}"}
                )
    return found


def result(line: Line, command: str) -> Line:
    """A line of the results file."""
    versions = {"python": platform.python_version(), **line["versions"]}
    return {
        "benchmark": "store",
        "case": line["case"],
        "variant": line["variant"],
        "metric": line["metric"],
        "value": float(f"{line['value']:.4g}"),
        "unit": line["metric"].replace("_per_", "/"),
        "device": f"{platform.machine()} CPU, 1 thread",
        "versions": versions,
        "date": datetime.now(UTC).date().isoformat(),
        "command": command,
        "note": line["note"],
    }


def table(results: Iterable[Line]) -> str:
    """Cases by variant, `-` where a library has no such operation; then our bounds."""
    results = list(results)
    variants = list(dict.fromkeys(line["variant"] for line in results))
    rows = dict.fromkeys((line["case"], line["unit"]) for line in results)
    cells = {(line["case"], line["unit"], line["variant"]): f"{line['value']:g}" for line in results}
    width = max(len(case) for case, _ in rows)
    head = f"{'case':{width}}  {'unit':10}  " + "  ".join(variants)
    body = [
        f"{case:{width}}  {unit:10}  "
        + "  ".join(f"{cells.get((case, unit, variant), '-'):>{len(variant)}}" for variant in variants)
        for case, unit in sorted(rows)
    ]
    return "\n".join([head, *body, "", *verdicts(results)])


def verdicts(results: list[Line]) -> list[str]:
    """One line for each bound: held or exceeded."""
    said = []
    for line in results:
        bound = BOUNDS.get((line["case"], line["metric"]))
        if bound is not None and line["variant"] == store_octopus.VARIANT:
            word = "holds" if line["value"] <= bound else "EXCEEDS"
            said.append(f"{line['case']}: {line['value']:g} {line['unit']} {word} the bound of {bound:g}")
    return said


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument(
        "--json", type=Path, required=True, help="file for the results, one JSON object a line"
    )
    path = parser.parse_args().json
    lines = octopus_figures()
    for adapter in RIVALS:
        lines += rival_figures(adapter)
    command = f"python benchmarks/store.py --json {path}"
    results = [result(line, command) for line in [*lines, *headlines(lines)]]
    path.write_text("".join(f"{json.dumps(line)}\n" for line in results))
    print(table(results))


if __name__ == "__main__":
    main()
