"""A stack to plant faults in: a tiny model, an episode, and the yardsticks.

Letters: T rows, V vocabulary, I tokens by oracle id.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field, replace
from functools import cached_property, partial
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from octopus.attention.exports import dense_view
from octopus.attention.plan import Plan
from octopus.models.backbone import Backbone
from octopus.models.families import FULL, RECURRENT, layer_kinds
from octopus.verify.executor import execute
from octopus.verify.functional.differences import RowLoss
from octopus.verify.functional.kernel import wrapped_attention
from octopus.verify.functional.stack import Stack, StackRotary
from octopus.verify.functional.trial import Trial
from octopus.verify.selftest.episodes import Episode, mounts, rows_by_path, tree
from octopus.verify.selftest.fault import (
    FOREIGN,
    GEMMA3,
    GRANITE,
    LLAMA,
    NEMOTRON,
    QWEN,
    QWEN3,
    QWEN3_NEXT,
    Fault,
)
from octopus.verify.selftest.hybrid_models import tiny_granite, tiny_nemotron, tiny_qwen3_next
from octopus.verify.selftest.models import tiny_gemma3, tiny_llama, tiny_qwen3, tiny_qwen35
from octopus.verify.tolerance import Measured, Yardstick, measure, shake

MODELS: dict[str, Callable[[torch.dtype], Any]] = {
    LLAMA: tiny_llama,
    QWEN3: tiny_qwen3,
    QWEN: tiny_qwen35,
    GEMMA3: tiny_gemma3,
    QWEN3_NEXT: tiny_qwen3_next,
    GRANITE: tiny_granite,
    NEMOTRON: tiny_nemotron,
    FOREIGN: tiny_llama,
}


@dataclass(frozen=True, kw_only=True, eq=False)
class Planted:
    """A stack with a fault in it.

    Attributes:
        stack: Runs with the fault.
        model: Its model.
        declared: What a dump of its row says.
        loss: Who is trained to predict what.
    """

    stack: Stack
    model: nn.Module
    declared: Plan
    loss: RowLoss

    def measured(self) -> Measured:
        """Outputs and gradients as the stack gives them."""
        logits_TV = self.stack.run(self.stack.tokens_T)
        return measure(self.model, logits_TV, self.loss(logits_TV))


@dataclass(frozen=True, kw_only=True, eq=False)
class Bench:
    """One stack.

    Attributes:
        name: One of `ALL` in `fault`.
        backend: Of our attention; of no meaning for a foreign stack.
    """

    name: str
    backend: str = "sliced"
    _clean: dict[torch.dtype, Measured] = field(default_factory=dict, repr=False)
    _models: dict[torch.dtype, Any] = field(default_factory=dict, repr=False)

    @cached_property
    def episode(self) -> Episode:
        """A tree for a library that knows no mounts, one with mounts for us."""
        return tree() if self.name == FOREIGN else mounts()

    @cached_property
    def loss(self) -> RowLoss:
        """Every token that has a predecessor, predicted by it; from the oracle."""
        return every_token(self.episode)

    @cached_property
    def yardstick(self) -> Yardstick:
        """The row computed in ways that share nothing with what is audited, from the same weights.

        The library computes norms and rotations in float32 whatever the weights, so its own float64 is not exact.
        """
        if self.name == FOREIGN:
            return Yardstick(
                rerun=partial(self._rerun, _alone),
                exact=partial(self._rerun, _token_by_token, torch.float64, None),
            )
        return Yardstick(rerun=partial(self._rerun, _token_by_token))

    def _rerun(self, way: Callable[[Any, Episode], Tensor], dtype: torch.dtype, seed: int | None) -> Measured:
        model = MODELS[self.name](dtype)
        if seed is not None:
            shake(model, seed)
        logits_TV = way(model, self.episode)
        return measure(model, logits_TV, self.loss(logits_TV))

    def clean(self, dtype: torch.dtype) -> Measured:
        """What the stack gives without a fault."""
        if dtype not in self._clean:
            with self.planted(None, dtype) as planted:
                self._clean[dtype] = planted.measured()
        return self._clean[dtype]

    def relaid(self, dtype: torch.dtype) -> tuple[Trial, Trial, np.ndarray, RowLoss]:
        """The tree in two layouts, for each row of the first its row in the second, and the loss of the first."""
        one, other = tree(), tree(backwards=True)
        trials = [
            Trial(stack=self._stack(dtype, episode.plan)[1], subject=episode.subject(self.name))
            for episode in (one, other)
        ]
        places = rows_by_path(other.plan)
        rows_T = np.array([places[path] for path in rows_by_path(one.plan)])
        return trials[0], trials[1], rows_T, every_token(one)

    @contextmanager
    def planted(self, fault: Fault | None, dtype: torch.dtype) -> Iterator[Planted]:
        """The stack in a dtype, with a fault in it while the context lasts. Nothing is left behind."""
        if (
            fault
        ):  # A fault may reach everything that runs in this process, so what is clean is computed before.
            self.clean(dtype)
            self.yardstick.noise(dtype)
        right = self.episode.plan
        told = fault.row(right) if fault and fault.row else right
        model, stack = self._stack(dtype, told)
        loss = fault.loss(self.loss, right) if fault and fault.loss else self.loss
        with ExitStack() as seams:
            if fault and fault.kernel:
                seams.enter_context(wrapped_attention(model, fault.kernel))
            if fault and fault.inside:
                seams.enter_context(fault.inside(model))
            declared = right if fault and fault.silent else told
            yield Planted(stack=stack, model=model, declared=declared, loss=loss)

    def _stack(self, dtype: torch.dtype, told: Plan) -> tuple[nn.Module, Stack]:
        if dtype not in self._models:
            model = MODELS[self.name](dtype)
            self._models[dtype] = model if self.name == FOREIGN else Backbone(model)
        known = self._models[dtype]
        if self.name == FOREIGN:
            return known, foreign_stack(self.name, known, told)
        return known.model, our_stack(self.name, known, told, backend=self.backend)


def every_token(episode: Episode) -> RowLoss:
    """Every token that has a predecessor, predicted by it; from the oracle."""
    tokens, rows_I = episode.tokens, episode.rows_I
    pairs = [(i, token.predecessor) for i, token in enumerate(tokens) if token.predecessor is not None]
    predicted, predictors = map(list, zip(*pairs, strict=True))
    return RowLoss(
        token_rows_N=rows_I[predicted],
        predictors_N=rows_I[predictors],
        labels_N=np.array([tokens[i].value for i in predicted]),
        weights_N=np.ones(len(predicted)),
        denominator=float(len(predicted)),
    )


def our_stack(name: str, backbone: Backbone, plan: Plan, *, backend: str) -> Stack:
    """A packed pass of ours over a plan."""

    def run(tokens_T: Tensor) -> Tensor:
        told = replace(plan, tokens_T=tokens_T.numpy())
        return backbone.logits(backbone.packed(told, backend=backend))

    kinds = layer_kinds(backbone.model.config)
    rotaries = [
        StackRotary(
            inverse_frequencies_R=rotary.rope.inverse_frequencies_R.numpy(),
            theta=_theta(backbone.model, kind),
            inside=True,
            attention_factor=rotary.attention_factor,
        )
        for kind, rotary in zip(kinds, backbone.rotaries, strict=True)
        if kind != RECURRENT and rotary.rope is not None
    ]
    return Stack(
        name=name,
        model=backbone.model,
        run=run,
        tokens_T=torch.from_numpy(plan.tokens_T),
        rotaries=tuple(rotaries),
    )


def foreign_stack(name: str, model: Any, plan: Plan) -> Stack:
    """A model of the library, given a mask [1, 1, T, T] and position ids, as tree training on it does."""
    visible_TT, _ = dense_view(plan)
    mask, positions = torch.from_numpy(visible_TT)[None, None], torch.from_numpy(plan.positions_T)[None]

    def run(tokens_T: Tensor) -> Tensor:
        found = model(input_ids=tokens_T[None], attention_mask=mask, position_ids=positions, use_cache=False)
        logits_TV: Tensor = found.logits[0]
        return logits_TV

    rotary = StackRotary(
        inverse_frequencies_R=model.model.rotary_emb.inv_freq.double().numpy(), theta=_theta(model), inside=False
    )
    return Stack(
        name=name,
        model=model,
        run=run,
        tokens_T=torch.from_numpy(plan.tokens_T),
        rotaries=(rotary,) * len(model.model.layers),
    )


def _theta(model: Any, kind: str = FULL) -> float:
    parameters = model.config.rope_parameters
    return float(parameters.get(kind, parameters)["rope_theta"])


def _token_by_token(model: Any, episode: Episode) -> Tensor:
    logits_IV = execute(model, episode.tokens)[1]
    return logits_IV[np.argsort(episode.rows_I)]


def _alone(model: Any, episode: Episode) -> Tensor:
    """Every path as a row of its own; a token on several paths is taken from the first."""
    tokens = episode.tokens
    rows: dict[int, Tensor] = {}
    for leaf in sorted(set(range(len(tokens))) - {token.predecessor for token in tokens}):
        path: list[int] = []
        at: int | None = leaf
        while at is not None:
            path.append(at)
            at = tokens[at].predecessor
        path.reverse()
        ids = torch.tensor([[tokens[i].value for i in path]])
        logits_NV = model(input_ids=ids, use_cache=False).logits[0]
        for i, logits_V in zip(path, logits_NV, strict=True):
            rows.setdefault(int(episode.rows_I[i]), logits_V)
    return torch.stack([rows[row] for row in range(len(rows))])
