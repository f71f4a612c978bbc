"""What the HTTP application may ask of a run: a closed set of questions, whose answers are JSON."""

from __future__ import annotations

from typing import Any, Literal, Protocol

from octopus.core.errors import OctopusError

Read = Literal["alive", "ready", "status", "metrics"]
Wish = Literal["pause", "resume", "save", "cancel"]
Question = Read | Wish


class Unanswered(OctopusError):
    """The run does not answer in time, or no longer."""


class Failed(OctopusError):
    """The run failed to answer; its log says why."""


class Run(Protocol):
    """Whoever answers for a run."""

    async def ask(self, question: Question, **arguments: Any) -> Any:
        """The answer, as JSON has it.

        Raises:
            Unanswered: There was none.
            Failed: An error of ours.
        """
        ...
