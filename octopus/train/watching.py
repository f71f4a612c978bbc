"""What a run tells whoever watches it while it goes on, and what it is asked between two steps."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Literal, Protocol

from octopus.core.graph import Graph
from octopus.rollout.cancelling import Cancelling

Phase = Literal["starting", "training", "saving", "evaluating", "stopping"]
"""What a run is at."""


class Watch(Protocol):
    """Told from the thread that trains; must return soon and never raise."""

    def rollouts(self, graph: Graph, cancelling: Cancelling) -> None:
        """The graph that rollouts are written on, once it is there, and where to ask for one to end."""
        ...

    def phase(self, phase: Phase) -> None:
        """What the run is at from now on."""
        ...

    def step(self, step: int, of: int, figures: Mapping[str, Any]) -> None:
        """Step `step`, from 1, of `of` has been taken, with the figures of `metrics.jsonl`."""
        ...

    def saved(self, step: int) -> None:
        """The state after a step lies on the disk."""
        ...

    def between_steps(self, stopping: Callable[[], bool]) -> bool:
        """Waits as long as the run is to pause and `stopping()` is false. Returns whether it is to save now."""
        ...


class Nobody:
    """Does not watch."""

    def rollouts(self, graph: Graph, cancelling: Cancelling) -> None:
        """See `Watch.rollouts`."""

    def phase(self, phase: Phase) -> None:
        """See `Watch.phase`."""

    def step(self, step: int, of: int, figures: Mapping[str, Any]) -> None:
        """See `Watch.step`."""

    def saved(self, step: int) -> None:
        """See `Watch.saved`."""

    def between_steps(self, stopping: Callable[[], bool]) -> bool:
        """See `Watch.between_steps`; nobody asks for anything."""
        return False


NOBODY: Watch = Nobody()
