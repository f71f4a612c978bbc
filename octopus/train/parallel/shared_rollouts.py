"""Rollouts that are shared out to ranks: each plays some of the tasks, and all get the records of all."""

from __future__ import annotations

from collections.abc import Sequence

from octopus.rollout.engine import Engine
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

    The engine has memory for keys and states only while it plays; between times the trainer has it.
    """

    def __init__(self, rollouts: Rollouts, engine: Engine, ranks: Ranks) -> None:
        """Shares out what `rollouts` plays on `engine`, whose model's weights may be sharded."""
        engine.release_memory()
        self._rollouts = rollouts
        self._engine = engine
        self._ranks = ranks

    @property
    def weights_version(self) -> int:
        """See `Rollouts.weights_version`; the same on every rank."""
        return self._rollouts.weights_version

    @property
    def tool_seconds(self) -> tuple[float, float]:
        """See `Rollouts.tool_seconds`: of all ranks together. A collective."""
        succeeded, failed = self._ranks.total(list(self._rollouts.tool_seconds))
        return succeeded, failed

    def run(self, tasks: Sequence[Task]) -> list[tuple[RolloutRecord, ...]]:
        """See `Rollouts.run`. Every rank calls it with the same tasks; the n-th task is played by rank n mod size.

        Raises CapacityExceeded if the device has no room for the engine's memory.
        """
        rank, size = self._ranks.rank, self._ranks.size
        with whole(self._engine.backbone.model):
            own = self._play(tasks[rank::size]) if tasks[rank::size] else []
        if size == 1:
            return own
        groups: list[tuple[RolloutRecord, ...]] = [()] * len(tasks)
        for other, sent in enumerate(self._ranks.gather([to_wire(group) for group in own])):
            groups[other::size] = own if other == rank else [from_wire(value) for value in sent]
        return groups

    def _play(self, tasks: Sequence[Task]) -> list[tuple[RolloutRecord, ...]]:
        self._engine.take_back_memory()
        records = self._rollouts.run(tasks)
        self._engine.release_memory()
        return records
