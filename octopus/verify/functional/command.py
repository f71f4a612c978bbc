"""`octopus-verify isolate` and `octopus-verify grad` on a running model.

Without `--call` our own stack is audited. With it, anybody's: the function named takes nothing and returns a `Trial`
(for `isolate`), or a `Trial`, a `RowLoss` and a `Yardstick` (for `grad`).
"""

from __future__ import annotations

import argparse
import importlib
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

from octopus.verify.findings import Report
from octopus.verify.inputs import Unreadable

if TYPE_CHECKING:
    from octopus.verify.functional.audits import Stage


def configure(parser: argparse.ArgumentParser, name: str) -> None:
    """Adds the options of `isolate` or `grad`. Imports nothing heavy."""
    what = "an octopus.verify.functional.trial.Trial" + ("" if name == "isolate" else ", a RowLoss and a Yardstick")
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
    whose = f"what {options.call} returned" if options.call else f"Octopus's own stack ({options.family})"
    report = Report(notes=(f"audited: {whose}" + ("" if options.call else "; --call MODULE:FUNCTION audits yours"),))
    for stage in _stages(options, name):
        report += stage.report()
    return report


def _stages(options: argparse.Namespace, name: str) -> Iterator[Stage]:
    if options.call is None:
        yield from _our_stages(options, name)
        return
    given = _called(options.call)

    from octopus.verify.functional.audits import gradient_stages, isolation_stages
    from octopus.verify.functional.trial import Trial

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
    if not module or not function:
        raise Unreadable(f"--call is {path!r}, expected MODULE:FUNCTION, as in my_trainer:stack")
    if (here := str(Path.cwd())) not in sys.path:
        sys.path.insert(0, here)  # As `python -m` does; the console script's own folder holds no module of the user.
    try:
        return getattr(importlib.import_module(module), function)()
    except (ImportError, AttributeError, TypeError, ValueError) as error:
        raise Unreadable(f"cannot call {path!r}: {error}") from error
    except (ArithmeticError, AssertionError, LookupError, OSError, RuntimeError) as error:
        raise Unreadable(f"{path} raised {type(error).__name__}: {error}") from error
