"""`octopus-verify selftest`: can the auditor itself be trusted?"""

from __future__ import annotations

import argparse
import json
from dataclasses import asdict


def configure(parser: argparse.ArgumentParser) -> None:
    """Adds the options. Imports nothing heavy."""
    parser.add_argument(
        "--stack", action="append", choices=["llama", "qwen3.5", "hf-llama"], help="only this one"
    )
    parser.add_argument(
        "--dtype", action="append", choices=["float64", "float32", "bfloat16"], help="only this one"
    )
    parser.add_argument("--fault", action="append", metavar="NAME", help="only this one; may be given again")
    parser.add_argument(
        "--format", choices=["text", "markdown", "compact", "json"], default="text", help="of the matrix"
    )


def run(options: argparse.Namespace) -> int:
    """Plants the faults and prints the matrix: 0 if all that must be caught is, 1 otherwise, 2 for no such fault."""
    import torch

    from octopus.verify.selftest.bench import Bench
    from octopus.verify.selftest.fault import ALL
    from octopus.verify.selftest.faults import FAULTS
    from octopus.verify.selftest.matrix import DTYPES, run_matrix
    from octopus.verify.selftest.table import compact, table

    faults = [fault for fault in FAULTS if not options.fault or fault.name in options.fault]
    unknown = set(options.fault or ()) - {fault.name for fault in FAULTS}
    if unknown:
        print(
            f"no fault is called {', '.join(sorted(unknown))}; there are: {', '.join(f.name for f in FAULTS)}"
        )
        return 2
    dtypes = [getattr(torch, name) for name in options.dtype] if options.dtype else DTYPES
    matrix = run_matrix(faults, [Bench(name=name) for name in options.stack or ALL], dtypes)
    failures = matrix.failures()
    if options.format == "json":
        print(json.dumps({"cells": [asdict(c) for c in matrix.cells], "failures": failures}, indent=1))
    elif options.format == "compact":
        print("\n".join((*compact(matrix), *failures)))
    else:
        print("\n".join((*table(matrix, markdown=options.format == "markdown"), *failures)))
    return 1 if failures else 0
