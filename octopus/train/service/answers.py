"""How a run answers for itself: from what is observed, when it is asked."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from prometheus_client import generate_latest

from octopus.train.service.asking import Question
from octopus.train.service.metrics import registry_of
from octopus.train.service.observed import Observed


class Answers:
    """Answers every question in the thread that asks. See `Run`."""

    def __init__(self, observed: Observed) -> None:
        """Of one run."""
        registry = registry_of(observed)
        self._answers: Mapping[Question, Callable[..., Any]] = {
            "alive": lambda: True,
            "ready": lambda: {"ready": observed.ready, "phase": observed.at},
            "status": observed.status,
            "metrics": lambda: generate_latest(registry).decode(),
            "pause": observed.pause,
            "resume": observed.resume,
            "save": observed.ask_save,
            "cancel": observed.cancel,
        }

    async def ask(self, question: Question, **arguments: Any) -> Any:
        """See `Run.ask`."""
        return self._answers[question](**arguments)
