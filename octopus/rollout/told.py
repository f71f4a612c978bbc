"""What an episode tells of itself while it is played, to the log and as spans."""

from __future__ import annotations

from contextlib import AbstractContextManager
from typing import Literal

from structlog.contextvars import bound_contextvars

from octopus.rollout.agents import Agent
from octopus.rollout.logs import new_logger
from octopus.rollout.spans import Span, Spans
from octopus.rollout.tools import ToolResult

LOGGER = new_logger(__name__)


class Told:
    """One episode's."""

    def __init__(self, name: str, spans: Spans) -> None:
        """The episode `name` begins."""
        self._name = name
        self._spans = spans
        self._span = spans.begin("episode", episode=name)
        self._calls: dict[Agent, tuple[str, Span]] = {}

    def about(self, agent: Agent) -> AbstractContextManager[None]:
        """Around work for an agent: whoever logs meanwhile, here or in the tool that is called, logs of it."""
        return bound_contextvars(episode=self._name, thread=agent.thread.id)

    def calls(self, agent: Agent, tool: str) -> None:
        """The agent's call of a tool begins."""
        self._calls[agent] = tool, self._spans.begin("tool", self._span, thread=agent.thread.id, tool=tool)

    def came_back(self, agent: Agent, result: ToolResult) -> None:
        """It has ended."""
        tool, span = self._calls.pop(agent)
        span.end(ok=result.ok, attempts=result.attempts)
        if not result.ok:
            with self.about(agent):
                LOGGER.warning("tool.failed", tool=tool, attempts=result.attempts, error=result.text)

    def short_of_memory(self, event: Literal["episode.paused", "episode.put_off", "memory.refused"]) -> None:
        """The episode had to give way."""
        LOGGER.warning(event, episode=self._name)

    def left(self, outcome: str | None) -> None:
        """It is played no more; without an outcome it is put off, or its run ends."""
        for _, span in self._calls.values():
            span.end(ok=False)
        self._span.end(outcome=outcome or "left")
