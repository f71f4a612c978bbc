"""Questions about eight short documents, which the smallest of models learns by heart within seconds."""

from __future__ import annotations

import itertools
import random

import tiny_policy

from octopus.retrieval.bm25 import Bm25
from octopus.retrieval.corpus import Corpus, Document
from octopus.retrieval.questions import Question, Split
from octopus.rollout.environment import DescribedObjects, Task
from octopus.rollout.records import RolloutRecord
from octopus.rollout.scripted import play_script
from octopus.train.job_config import GrpoConfig, JobConfig, JobRunConfig, TaskConfig
from octopus.train.tasks import group_tasks, held_out, seed_of

THINGS = {
    "file": "opened paths on disk",
    "name": "words that people call",
    "type": "kinds of every value",
    "time": "seconds since the epoch",
    "list": "ordered items in sequence",
    "class": "blueprints for new objects",
    "string": "letters in some encoding",
    "error": "failures that were raised",
}
DOCUMENTS = [Document(id=name.upper(), name=name, text=text) for name, text in THINGS.items()]


class ToyTasks:
    """All splits ask for the same documents, in one or two parts."""

    def __init__(self, config: JobConfig) -> None:
        self.config = config
        self.retriever = Bm25.build(Corpus(DOCUMENTS))
        self.played: list[str] = []

    def scripted(self, step: int) -> list[DescribedObjects]:
        return self.environments(f"scripted {step}", self.config.imitation.episodes)

    def training(self, step: int) -> list[Task]:
        self.played.append(f"training {step}")
        return group_tasks(self.environments("train", 64), step, config=self.config)

    def held_out(self, split: Split) -> list[Task]:
        evaluation = self.config.evaluation
        count = evaluation.validation_questions if split == "validation" else evaluation.test_questions
        asked = [environment.question for environment in self.environments(split, count)]
        return held_out(asked, self.retriever)

    def environments(self, name: str, count: int) -> list[DescribedObjects]:
        rng = random.Random(seed_of(name))
        parts = itertools.cycle(self.config.task.parts)
        chosen = [rng.sample(DOCUMENTS, next(parts)) for _ in range(count)]
        return [
            DescribedObjects(question=_question(f"{name}-{number}", documents), retriever=self.retriever)
            for number, documents in enumerate(chosen)
        ]


def environment(parts: int, *, number: int = 0) -> DescribedObjects:
    """One question of so many parts, another for each number."""
    config = JobConfig(
        kind="job", run=JobRunConfig(folder="x"), grpo=GrpoConfig(steps=1), task=TaskConfig(parts=(parts,))
    )
    return ToyTasks(config).environments("one", number + 1)[number]


def right(asked: DescribedObjects, mode: str = "octopus") -> RolloutRecord:
    """The episode in which the script answers it."""
    return play_script("right", asked, tiny_policy.codec(), mode)


def _question(name: str, documents: list[Document]) -> Question:
    return Question(
        id=name,
        parts=tuple(" ".join(word for word in document.text.split() if len(word) > 4) for document in documents),
        gold=tuple(document.id for document in documents),
        answer=", ".join(document.name for document in documents),
        split="train",
    )
