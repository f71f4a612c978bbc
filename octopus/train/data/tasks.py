"""The rows of a job as tasks to be played."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from octopus.core.errors import ConfigError
from octopus.retrieval.bm25 import Bm25
from octopus.retrieval.corpus import Corpus
from octopus.retrieval.questions import Split
from octopus.retrieval.retriever import Retriever
from octopus.rollout.environment import DescribedObjects, Task
from octopus.train.data.asked import AskedRow, RowJudge
from octopus.train.data.order import Order
from octopus.train.data.rewards import Rewards, load_functions
from octopus.train.data.rows import Row, read_rows
from octopus.train.job_config import JobConfig
from octopus.train.tasks import LibraryTasks, Tasks, seed_of


class RowTasks:
    """Rows to be rolled out; see `Tasks`.

    Rows of an evaluation are never trained on: they come from rows of their own, or are the last of the training rows.
    """

    def __init__(
        self,
        config: JobConfig,
        *,
        rows: Sequence[Row],
        rewards: Rewards,
        held_out: Sequence[Row] | None = None,
        retriever: Retriever | None = None,
    ) -> None:
        """Takes rows, and functions that reward.

        Args:
            config: The run. Of its task section nothing is read.
            rows: To train on.
            rewards: What an answer earns.
            held_out: For evaluation: first those of validation, then those of the test. None cuts them off `rows`.
            retriever: What agents search.

        Raises:
            ConfigError: There are too few rows, or a reward function cannot be called with their columns.
        """
        evaluation = config.evaluation
        needed = evaluation.validation_questions + evaluation.test_questions
        source = rows if held_out is None else held_out
        spare = int(held_out is None)
        if len(source) < needed + spare:
            raise ConfigError(
                f"expected at least {needed + spare} {'' if spare else 'held-out '}rows: evaluation asks "
                f"{evaluation.validation_questions} of validation and {evaluation.test_questions} of the test"
                f"{', and one is left to train on' if spare else ''}; came {len(source)}"
            )
        if not rows:
            raise ConfigError("expected at least one row to train on, came none")
        cut = len(rows) - needed if held_out is None else len(rows)
        self._train = list(rows[:cut])
        self._held_out = list(rows[cut:]) if held_out is None else list(held_out)
        for columns in {tuple(row.columns) for row in (*self._train, *self._held_out)}:
            rewards.refuse_unfit(columns)
        self._config = config
        self._rewards = rewards
        self._judge = RowJudge(rewards)
        self._retriever = retriever
        self._order = Order(len(self._train), seed=config.run.seed)

    @classmethod
    def read(cls, config: JobConfig) -> RowTasks:
        """The rows, functions and documents that the task section names.

        Raises:
            ConfigError: One of them is not there or not in order.
            RetrievalError: The documents are not.
        """
        task = config.task
        functions = load_functions(task.reward)
        return cls(
            config,
            rows=read_rows(Path(task.file or "")),
            rewards=Rewards(functions, weights=task.reward_weights, time_s=task.reward_seconds),
            held_out=None if task.held_out is None else read_rows(Path(task.held_out)),
            retriever=None if task.corpus is None else Bm25.build(Corpus.read(Path(task.corpus))),
        )

    def scripted(self, step: int) -> list[DescribedObjects]:
        """See `Tasks`. Nobody has written a script for rows: they are imitated from demonstrations."""
        raise ConfigError("rows have no script to imitate; set imitation.file to a file of demonstrations")

    def training(self, step: int) -> list[Task]:
        """See `Tasks`. Every row is asked once before one comes round again."""
        grpo, seed = self._config.grpo, self._config.run.seed
        numbers = range((step - 1) * grpo.questions, step * grpo.questions)
        return [
            self._task(
                row,
                f"step-{step}/{number}: {row.name}",
                tuple(seed_of(seed, "rollout", number, rollout) for rollout in range(grpo.rollouts)),
            )
            for number in numbers
            for row in [self._train[self._order[number]]]
        ]

    def held_out(self, split: Split) -> list[Task]:
        """See `Tasks`."""
        evaluation = self._config.evaluation
        first = 0 if split == "validation" else evaluation.validation_questions
        count = evaluation.validation_questions if split == "validation" else evaluation.test_questions
        return [self._task(row, row.name, (0,)) for row in self._held_out[first : first + count]]

    def _task(self, row: Row, name: str, seeds: tuple[int, ...]) -> Task:
        environment = AskedRow(row=row, rewards=self._rewards, retriever=self._retriever)
        return Task(name=name, environment=environment, seeds=seeds, judge=self._judge)


def tasks_of(config: JobConfig) -> Tasks:
    """What a job asks. Raises ConfigError; see `RowTasks.read`."""
    return RowTasks.read(config) if config.task.kind == "rows" else LibraryTasks(config)
