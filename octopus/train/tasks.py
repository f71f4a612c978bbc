"""The questions of a job, as tasks to be played."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache
from hashlib import blake2b
from typing import Protocol

from octopus.retrieval.bm25 import Bm25
from octopus.retrieval.corpus import Corpus
from octopus.retrieval.questions import Question, Split, fresh_corpus, questions, questions_about
from octopus.retrieval.retriever import Retriever
from octopus.rollout.environment import DescribedObjects, Task
from octopus.train.job_config import JobConfig

FRESH_DOCUMENTS = 64
"""Documents of the corpus that is made anew for each step of imitation."""


class Tasks(Protocol):
    """Where a job's tasks come from: pure functions, so that a resumed run is given what it was given before."""

    def scripted(self, step: int) -> list[DescribedObjects]:
        """The environments of a step of imitation, from 1."""

    def training(self, step: int) -> list[Task]:
        """The tasks of a step of reinforcement, from 1, each with the seeds of its rollouts."""

    def held_out(self, split: Split) -> list[Task]:
        """The tasks of an evaluation, with one seed each."""


class LibraryTasks:
    """Questions about Python's standard library; what is drawn depends on the configuration and the step alone."""

    def __init__(self, config: JobConfig) -> None:
        self._config = config
        self._retriever = library_retriever()
        self._lost = config.task.lost_searches
        seed, parts = config.run.seed, config.task.parts
        self._train = questions("train", config.task.train_questions, seed=seed, parts=parts)
        self._held_out: dict[Split, list[Task]] = {}

    def training(self, step: int) -> list[Task]:
        """See `Tasks`. The train questions are asked in turn."""
        environments = [
            DescribedObjects(question=question, retriever=self._retriever, lost=self._lost)
            for question in self._train
        ]
        return group_tasks(environments, step, config=self._config)

    def scripted(self, step: int) -> list[DescribedObjects]:
        """See `Tasks`. Questions about real texts under names that were drawn afresh.

        A model that saw real names here would learn them by heart instead of learning to look.
        """
        config = self._config
        seed = seed_of(config.run.seed, "imitation", step)
        documents = fresh_corpus(FRESH_DOCUMENTS, seed=seed, windows=True)
        retriever = Bm25.build(Corpus(documents))
        asked = questions_about(documents, config.imitation.episodes, seed=seed, parts=config.task.parts)
        return [
            DescribedObjects(question=question, retriever=retriever, lost=self._lost) for question in asked
        ]

    def held_out(self, split: Split) -> list[Task]:
        """See `Tasks`."""
        if split not in self._held_out:
            evaluation = self._config.evaluation
            count = evaluation.validation_questions if split == "validation" else evaluation.test_questions
            asked = questions(split, count, seed=evaluation.seed, parts=self._config.task.parts)
            self._held_out[split] = held_out(asked, self._retriever, lost=self._lost)
        return self._held_out[split]


@cache
def library_retriever() -> Retriever:
    """Search over the corpus that comes with the package, indexed once."""
    return Bm25.build(Corpus.load())


def group_tasks(environments: Sequence[DescribedObjects], step: int, *, config: JobConfig) -> list[Task]:
    """The next `grpo.questions` of the environments, which come round again, each with seeds of its own."""
    count = config.grpo.questions
    numbers = range((step - 1) * count, step * count)
    return [
        Task(
            name=f"step-{step}/{environment.question.id}",
            environment=environment,
            seeds=tuple(
                seed_of(config.run.seed, "rollout", number, rollout)
                for rollout in range(config.grpo.rollouts)
            ),
        )
        for number in numbers
        for environment in [environments[number % len(environments)]]
    ]


def held_out(asked: list[Question], retriever: Retriever, *, lost: float = 0.0) -> list[Task]:
    """Questions as tasks, one rollout each. `lost` as `DescribedObjects` has it."""
    return [
        Task(
            name=question.id, environment=DescribedObjects(question=question, retriever=retriever, lost=lost)
        )
        for question in asked
    ]


def seed_of(*key: object) -> int:
    """A seed that no other key has, the same on every machine."""
    return int.from_bytes(blake2b(repr(key).encode(), digest_size=6).digest())
