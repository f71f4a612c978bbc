"""Rollouts that are shared out to ranks: each plays some of the tasks, and all get the records of all."""

from __future__ import annotations

from collections.abc import Sequence

from torch.nn import Module

from octopus.rollout.environment import Task
from octopus.rollout.loop import Rollouts
from octopus.rollout.records import RolloutRecord
from octopus.train.parallel.ranks import Ranks
from octopus.train.parallel.sharding import whole
from octopus.train.parallel.wire import from_wire, to_wire


class SharedRollouts:
    """Plays like the `Rollouts` that it is given, on all ranks together.

    Groups stay whole on one rank, so their common prompt is computed once. Draws are keyed by the task's seeds, so who
    plays a task does not change them. Afterwards every rank holds the same records, and whatever is computed from them
    without the model (ratings, packs, figures) is computed alike on each, as in one process.
    """

    def __init__(self, rollouts: Rollouts, model: Module, ranks: Ranks) -> None:
        """Shares out what `rollouts` plays with `model`, whose weights may be sharded."""
        self._rollouts = rollouts
        self._model = model
        self._ranks = ranks

    @property
    def tool_seconds(self) -> tuple[float, float]:
        """See `Rollouts.tool_seconds`: of all ranks together. A collective."""
        succeeded, failed = self._ranks.total(list(self._rollouts.tool_seconds))
        return succeeded, failed

    def run(self, tasks: Sequence[Task]) -> list[tuple[RolloutRecord, ...]]:
        """See `Rollouts.run`. Every rank calls it with the same tasks; the n-th task is played by rank n mod size."""
        rank, size = self._ranks.rank, self._ranks.size
        with whole(self._model):
            own = self._rollouts.run(tasks[rank::size]) if tasks[rank::size] else []
        if size == 1:
            return own
        groups: list[tuple[RolloutRecord, ...]] = [()] * len(tasks)
        for other, sent in enumerate(self._ranks.gather([to_wire(group) for group in own])):
            groups[other::size] = own if other == rank else [from_wire(value) for value in sent]
        return groups
