"""`octopus-verify isolate` and `octopus-verify grad` on a running model.

Without `--call` our own stack is audited. With it, anybody's: the function named takes nothing and returns a `Trial`
(for `isolate`), or a `Trial`, a `RowLoss` and a `Yardstick` (for `grad`).
"""

from __future__ import annotations

import argparse
import importlib
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from octopus.verify.findings import Report
from octopus.verify.inputs import Unreadable

if TYPE_CHECKING:
    from octopus.verify.functional.audits import Stage


def configure(parser: argparse.ArgumentParser, name: str) -> None:
    """Adds the options of `isolate` or `grad`. Imports nothing heavy."""
    what = "a Trial" if name == "isolate" else "a Trial, a RowLoss and a Yardstick"
    parser.add_argument("--call", metavar="MODULE:FUNCTION", help=f"audit what this function returns: {what}")
    parser.add_argument("--family", choices=["llama", "qwen3.5"], default="llama", help="of our own stack")
    parser.add_argument("--backend", default="sliced", help="of our own stack")
    parser.add_argument(
        "--dtype", choices=["float64", "float32", "bfloat16"], default="float32", help="of our own stack"
    )


def run(options: argparse.Namespace, name: str) -> Report:
    """Runs every functional audit of the command.

    Raises:
        Unreadable: `--call` names nothing that can be called, or the call returns something else.
    """
    report = Report()
    for stage in _stages(options, name):
        report += stage.report()
    return report


def _stages(options: argparse.Namespace, name: str) -> Iterator[Stage]:
    from octopus.verify.functional.audits import gradient_stages, isolation_stages
    from octopus.verify.functional.trial import Trial

    if options.call is None:
        yield from _our_stages(options, name)
        return
    given = _called(options.call)
    trial, *further = given if isinstance(given, tuple) else (given,)
    if not isinstance(trial, Trial) or len(further) != (0 if name == "isolate" else 2):
        raise Unreadable(f"{options.call} returned {type(given).__name__}; see octopus-verify {name} --help")
    yield from isolation_stages(trial) if name == "isolate" else gradient_stages(trial, *further)


def _our_stages(options: argparse.Namespace, name: str) -> Iterator[Stage]:
    import torch

    from octopus.verify.functional.audits import (
        gradient_stages,
        isolation_stages,
        layout_stage,
        paged_stage,
    )
    from octopus.verify.functional.trial import Trial
    from octopus.verify.selftest.bench import Bench
    from octopus.verify.selftest.paged import EngineStack

    dtype: torch.dtype = getattr(torch, options.dtype)
    bench = Bench(name=options.family, backend=options.backend)
    with bench.planted(None, dtype) as planted:
        trial = Trial(stack=planted.stack, subject=bench.episode.subject(options.family))
        if name == "grad":
            yield from gradient_stages(trial, planted.loss, bench.yardstick)
            return
        yield from isolation_stages(trial, not_finite=True)
        yield layout_stage(*bench.relaid(dtype), bench.yardstick)
        yield paged_stage(EngineStack(family=options.family, dtype=dtype), trial)


def _called(path: str) -> Any:
    module, _, function = path.partition(":")
    try:
        return getattr(importlib.import_module(module), function)()
    except (ImportError, AttributeError, TypeError, ValueError) as error:
        raise Unreadable(f"cannot call {path!r}: {error}") from error
