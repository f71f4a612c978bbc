"""Rewards that are given to many episodes together, after they were played."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from octopus.rollout.environment import Environment, Task
    from octopus.rollout.records import RolloutRecord


class Judge(Protocol):
    """Rewards episodes in place of `Environment.score`."""

    def judge(
        self, environments: Sequence[Environment], records: Sequence[RolloutRecord]
    ) -> list[RolloutRecord]:
        """The records with their rewards, in their order; each was played in the environment beside it."""


def judged(
    tasks: Sequence[Task], groups: Sequence[tuple[RolloutRecord, ...]]
) -> list[tuple[RolloutRecord, ...]]:
    """The records of each task, rewarded by its judge if it has one. Each judge is asked once, for all its tasks."""
    results = list(groups)
    for judge in dict.fromkeys(task.judge for task in tasks if task.judge is not None):
        chosen = [number for number, task in enumerate(tasks) if task.judge is judge]
        environments = [tasks[number].environment for number in chosen for _ in groups[number]]
        rewarded = iter(judge.judge(environments, [record for number in chosen for record in groups[number]]))
        for number in chosen:
            results[number] = tuple(next(rewarded) for _ in groups[number])
    return results
