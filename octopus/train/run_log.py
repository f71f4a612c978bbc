"""What a run logs of itself: that it begins, each step, and how it ends, whatever ends it."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import ExitStack
from types import TracebackType
from typing import Any

from structlog.contextvars import bound_contextvars

from octopus import __version__
from octopus.core.errors import OctopusError, Stopped
from octopus.rollout.logs import new_logger
from octopus.train.evaluate import Evaluation
from octopus.train.parallel.ranks import Ranks

LOGGER = new_logger(__name__)
FIGURES = ("stage", "reward", "exact_match", "loss", "grad_norm", "loss_terms", "sampled_tokens", "packed_tokens")
"""Of `metrics.jsonl`, that stand in the line of a step."""


class RunLog:
    """Around a run: every line meanwhile says whose it is."""

    def __init__(self, folder: str, ranks: Ranks) -> None:
        """`folder` is what the run is called."""
        self._bound = bound_contextvars(run=folder, **({"rank": ranks.rank} if ranks.size > 1 else {}))
        self._stack = ExitStack()

    def __enter__(self) -> None:
        self._stack.enter_context(self._bound)
        LOGGER.info("run.started", version=__version__)

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        with self._stack:
            if error is None:
                LOGGER.info("run.ended", outcome="done")
            elif isinstance(error, Stopped):
                LOGGER.info("run.ended", outcome="stopped", why=str(error))
            elif isinstance(error, OctopusError):
                LOGGER.error("run.ended", outcome="failed", why=str(error))
            else:
                LOGGER.error("run.ended", outcome="failed", exc_info=error)


def log_step(step: int, of: int, figures: Mapping[str, Any]) -> None:
    """Says what a step brought; louder where its loss or gradient was not finite, so that the weights stayed."""
    told = {name: figures[name] for name in FIGURES if name in figures}
    if figures["updated"]:
        LOGGER.info("step.taken", of=of, **told)
    else:
        LOGGER.warning("step.not_finite", of=of, **told)


def log_evaluation(name: str, result: Evaluation, *, weights_step: int) -> None:
    """Says what the weights of a step answered."""
    figures = {"exact_match": result.exact_match, "questions": len(result.correct), "seconds": result.seconds}
    LOGGER.info("evaluation.done", evaluation=name, weights_step=weights_step, **figures)
