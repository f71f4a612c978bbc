"""Likelihood: how likely the right answer is to the orchestrator without some branches.

All worlds of all rollouts ride in one pass without gradients. What a world shares with the others, which is all but the
copies of what the hidden branches influenced and the answer's few tokens, stands in the row once.

Letters: C hidden channels, N answer tokens.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

import numpy as np
import torch

from octopus.attention.plan import lower
from octopus.core.lineage import lineage
from octopus.core.segment import Segment
from octopus.models.backbone import Backbone
from octopus.rollout.codec import Codec
from octopus.train.config import StepConfig
from octopus.train.credit.answer import reference_answer
from octopus.train.credit.counterfactual import Scope, answer_lines
from octopus.train.credit.world import NO_ANSWER, Valued, World
from octopus.train.passes import target_log_probabilities
from octopus.train.targets import targets


class Rescore:
    """The evaluation by likelihood. Values are mean natural log-probabilities of an answer's tokens (nats a token).

    Which answer that is, says `reference_answer`.
    """

    trust = 1.0

    def __init__(
        self, backbone: Backbone, codec: Codec | None, *, scope: Scope, step: StepConfig, budget_tokens: int
    ) -> None:
        """Rescores with the weights that `backbone` has at the call.

        Args:
            backbone: The model.
            codec: The model's; None for one that speaks otherwise.
            scope: What becomes of what others wrote under a hidden branch's influence.
            step: How passes are carried out.
            budget_tokens: Most tokens of a row. Worlds beyond it are evaluated in further passes; a world that is
                larger alone gets a pass of its own.
        """
        self._backbone = backbone
        self._codec = codec
        self._scope = scope
        self._step = step
        self._budget_tokens = budget_tokens

    def values(self, worlds: Sequence[World]) -> list[Valued]:
        """See `Evaluation`."""
        lines = answer_lines(worlds)
        right = {one: reference_answer(one, self._codec, line.place) for one, line in lines.items()}
        graphs = [lines[w.played].without(w.hidden, self._scope) if w.played in lines else None for w in worlds]
        answers = {
            number: lines[world.played].place.continued_by(right[world.played].tokens, graph.place)
            for number, (world, graph) in enumerate(zip(worlds, graphs, strict=True))
            if graph is not None and graph.place is not None
        }
        values = {}
        for row in _rows(answers, self._budget_tokens):
            for number, score in zip(row, self._scores([answers[number] for number in row]), strict=True):
                values[number] = right[worlds[number].played].weight * score
        return [
            NO_ANSWER
            if graph is None
            else Valued(value=values.get(number), hidden_tokens=graph.hidden_tokens, empty=graph.empty)
            for number, graph in enumerate(graphs)
        ]

    @torch.no_grad()
    def _scores(self, answers: Sequence[Segment]) -> list[float]:
        """The mean log-probability of each answer, all of them in one row."""
        plan = lower(lineage(answers))
        spans = [np.arange(len(answer.tokens)) + plan.starts[answer] for answer in answers]
        hidden_TC = self._backbone.packed(plan, backend=self._step.backend)
        scored_N = target_log_probabilities(
            self._backbone,
            hidden_TC,
            targets(plan, np.concatenate(spans)),
            logit_rows=self._step.logit_rows,
        )
        pieces = scored_N.double().split([len(span) for span in spans])
        means: list[float] = torch.stack([piece.mean() for piece in pieces]).tolist()
        return means


def _rows(answers: Mapping[int, Segment], budget_tokens: int) -> Iterator[list[int]]:
    """Cuts answers, in their order, into rows of at most `budget_tokens` tokens each, but at least one answer."""
    row: list[int] = []
    held: set[Segment] = set()
    for number, answer in answers.items():
        needed = set(lineage([answer]))
        if row and sum(len(segment.tokens) for segment in held | needed) > budget_tokens:
            yield row
            row, held = [], set()
        row.append(number)
        held |= needed
    if row:
        yield row
