"""How many questions a model answers exactly right, taking the likeliest token every time."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import torch

from octopus.retrieval.questions import Split, questions
from octopus.rollout.environment import Task
from octopus.rollout.loop import Rollouts
from octopus.train.job_config import Mode, RolloutConfig
from octopus.train.parallel.shared_rollouts import SharedRollouts
from octopus.train.players import new_engine, new_rollouts
from octopus.train.policy import load_policy, policy_folder
from octopus.train.tasks import held_out, library_retriever


@dataclass(frozen=True, kw_only=True, slots=True)
class Evaluation:
    """Greedy answers to questions, in their order.

    Attributes:
        questions: Names of the tasks.
        parts: Number of parts of each question; 0 where it has none.
        correct: Whether its answer was exactly right.
        rewards: What its answer earned, 0 to 1.
        outcomes: How many episodes ended in which way.
        seconds: Wall time.
    """

    questions: tuple[str, ...]
    parts: tuple[int, ...]
    correct: tuple[bool, ...]
    rewards: tuple[float, ...]
    outcomes: dict[str, int]
    seconds: float

    @property
    def exact_match(self) -> float:
        """Share of the questions that were answered exactly right."""
        return sum(self.correct) / len(self.correct)

    def lines(self) -> Iterator[str]:
        """For people: exact match over all questions and by number of parts, and how the episodes ended."""
        for parts in (None, *sorted(set(self.parts) - {0})):
            chosen = [
                right for own, right in zip(self.parts, self.correct, strict=True) if parts in (None, own)
            ]
            label = "all" if parts is None else f"{parts} part{'s' if parts > 1 else ''}"
            yield f"{label:<10}{sum(chosen) / len(chosen):8.3f}   {sum(chosen)} of {len(chosen)}"
        yield "episodes  " + ", ".join(f"{name} {count}" for name, count in self.outcomes.items())
        yield f"{self.seconds:.1f} s"

    def as_json(self) -> dict[str, Any]:
        """A line of `evaluations.jsonl`."""
        return {
            "questions": list(self.questions),
            "parts": list(self.parts),
            "correct": list(map(int, self.correct)),
            "rewards": list(self.rewards),
            "outcomes": self.outcomes,
            "evaluation_seconds": self.seconds,
        }


def evaluate(greedy: Rollouts | SharedRollouts, tasks: Sequence[Task]) -> Evaluation:
    """Plays each task once.

    Args:
        greedy: Plays at temperature 0.
        tasks: At least one, each with one seed.
    """
    started = time.perf_counter()
    records = [record for (record,) in greedy.run(tasks)]
    return Evaluation(
        questions=tuple(task.name for task in tasks),
        parts=tuple(len(record.gold) for record in records),
        correct=tuple(record.correct for record in records),
        rewards=tuple(record.episode.reward for record in records),
        outcomes=dict(sorted(Counter(record.outcome for record in records).items())),
        seconds=time.perf_counter() - started,
    )


def evaluate_policy(
    name: str,
    *,
    count: int,
    mode: Mode = "octopus",
    split: Split = "test",
    parts: Sequence[int] = (1, 2, 3, 4),
    lost: float,
    seed: int = 0,
    device: str = "cpu",
) -> Evaluation:
    """Evaluates a policy on questions about the standard library.

    Args:
        name: See `policy_folder`.
        count: Number of questions.
        mode: How they are played.
        split: Of the documents that are asked for.
        parts: Numbers of parts, in turn.
        lost: Share of searches that show nothing.
        seed: Of the questions.
        device: Where the model runs, in float32.

    Raises:
        ConfigError: There is no policy.
    """
    model, codec = load_policy(policy_folder(name), dtype=torch.float32, device=device)
    config = RolloutConfig(mode=mode)
    greedy = new_rollouts(new_engine(model, codec, config), codec, config, temperature=0.0)
    asked = questions(split, count, seed=seed, parts=parts)
    return evaluate(greedy, held_out(asked, library_retriever(), lost=lost))
