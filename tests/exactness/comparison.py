"""One episode computed several ways, from the same weights: logits, log-probabilities, and gradients of one loss.

The loss is a randomly weighted sum of the log-probabilities of all tokens that have a predecessor on their path.

Letters: T rows, I tokens by oracle id, N predicted tokens by oracle id, V vocabulary.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from copy import deepcopy
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import torch
from exact_library import ExactLibrary
from random_graphs import RandomEpisode, lowered
from torch import Tensor, nn
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

from octopus.attention.plan import Plan, lower
from octopus.core.graph import Graph
from octopus.models.backbone import Backbone
from octopus.train.targets import targets
from octopus.verify.executor import execute
from octopus.verify.oracle import OracleToken

LOGITS_TOLERANCE = 1e-10
GRADIENTS_TOLERANCE = 1e-9


class Pair(NamedTuple):
    """The same weights twice: as the library made them, and bound to our forwards."""

    plain: nn.Module
    backbone: Backbone


def pair(model: nn.Module) -> Pair:
    """A model and its bound copy."""
    return Pair(model, Backbone(deepcopy(model)))


@dataclass(frozen=True, kw_only=True)
class Outcome:
    """What one way of computing an episode gives."""

    logits_IV: Tensor
    log_probabilities_N: Tensor
    gradients: Mapping[str, Tensor]


def run_packed(backbone: Backbone, episode: RandomEpisode, *, backend: str = "sliced") -> Outcome:
    """The whole episode as one pack, scored by the trainer's own targets."""
    plan, rows_I = lowered(episode)
    found = targets(plan)
    order_N = np.argsort(np.argsort(rows_I)[found.token_rows_N])
    logits_TV = backbone.logits(backbone.packed(plan, backend=backend))
    return _outcome(
        backbone.model, logits_TV, rows_I, found.predictor_rows_N[order_N], found.labels_N[order_N]
    )


def run_executor(model: nn.Module, tokens: Sequence[OracleToken]) -> Outcome:
    """The tokens one by one, in time order."""
    predicted = [token for token in tokens if token.predecessor is not None]
    logits_IV = execute(model, tokens)[1]
    predictors, labels = [token.predecessor for token in predicted], [token.value for token in predicted]
    return _outcome(model, logits_IV, range(len(tokens)), predictors, labels)


def run_alone(backbone: Backbone, tokens: Sequence[OracleToken]) -> Outcome:
    """Each path as a plain row of its own; a token on several paths is scored on the first."""
    return _alone(
        backbone.model, tokens, lambda values: backbone.logits(backbone.packed(plain_row(values)))
    )


def run_library(model: nn.Module, tokens: Sequence[OracleToken]) -> Outcome:
    """The same through the unmodified model of the library, every one of its float32 detours made in float64."""
    with ExactLibrary():
        return _alone(model, tokens, lambda values: model(torch.tensor([values]), use_cache=False).logits[0])


def _alone(
    model: nn.Module, tokens: Sequence[OracleToken], row_logits: Callable[[Sequence[int]], Tensor]
) -> Outcome:
    rows: dict[int, int] = {}
    predictors: dict[int, int] = {}
    logits, first = [], 0
    for path in leaf_paths(tokens):
        logits.append(row_logits([tokens[i].value for i in path]))
        for row, token_id in enumerate(path, first):
            if token_id not in rows:
                rows[token_id] = row
                predictors[token_id] = row - 1
        first += len(path)
    predicted = [i for i, token in enumerate(tokens) if token.predecessor is not None]
    return _outcome(
        model,
        torch.cat(logits),
        [rows[i] for i in range(len(tokens))],
        [predictors[i] for i in predicted],
        [tokens[i].value for i in predicted],
    )


def leaf_paths(tokens: Sequence[OracleToken]) -> list[list[int]]:
    """The ids on the path to each token that no other follows."""
    paths = []
    for leaf in set(range(len(tokens))) - {token.predecessor for token in tokens}:
        path, at = [], leaf
        while at is not None:
            path.append(at)
            at = tokens[at].predecessor
        paths.append(path[::-1])
    return paths


def plain_row(values: Sequence[int]) -> Plan:
    """The plan of one thread that wrote `values` and did nothing else."""
    graph = Graph()
    graph.append(graph.thread(), values)
    return lower(graph.segments)


def _outcome(
    model: nn.Module, logits_TV: Tensor, rows: Sequence[int], predictors: Sequence[int], labels: Sequence[int]
) -> Outcome:
    rows_I, predictors_N, labels_N = (
        torch.tensor(np.array(x, dtype=np.int64)) for x in (rows, predictors, labels)
    )
    log_probabilities_N = logits_TV[predictors_N].log_softmax(dim=-1)[torch.arange(len(labels)), labels_N]
    weights_N = torch.randn(len(labels), generator=torch.Generator().manual_seed(7), dtype=torch.float64)
    names, parameters = zip(*model.named_parameters(), strict=True)
    loss = (log_probabilities_N * weights_N).sum()
    gradients = torch.autograd.grad(loss, parameters, materialize_grads=True)
    return Outcome(
        logits_IV=logits_TV.detach()[rows_I],
        log_probabilities_N=log_probabilities_N.detach(),
        gradients=dict(zip(names, gradients, strict=True)),
    )


def assert_same(found: Outcome, expected: Outcome) -> tuple[float, float]:
    """Both ways agree. Returns the largest error of a logit or log-probability, and of a gradient against its norm.

    Raises:
        AssertionError: an error is above its tolerance, or not a number.
    """
    logits = _largest(found.logits_IV - expected.logits_IV)
    log_probabilities = _largest(found.log_probabilities_N - expected.log_probabilities_N)
    assert logits <= LOGITS_TOLERANCE, f"a logit is off by {logits:.1e}"
    assert log_probabilities <= LOGITS_TOLERANCE, f"a log-probability is off by {log_probabilities:.1e}"
    assert found.gradients.keys() == expected.gradients.keys()
    worst = 0.0
    for name, gradient in expected.gradients.items():
        # A gradient that is zero in truth is rounding on both sides: below 1e-3 the tolerance is absolute.
        error = float((found.gradients[name] - gradient).norm() / gradient.norm().clamp(min=1e-3))
        assert error <= GRADIENTS_TOLERANCE, f"the gradient of {name} is off by {error:.1e}"
        worst = max(worst, error)
    return max(logits, log_probabilities), worst


def _largest(difference: Tensor) -> float:
    return float(difference.abs().max()) if difference.numel() else 0.0


class OnlyFloat64(TorchDispatchMode):
    """Fails at the first operation, backward included, that touches a floating-point tensor of another precision."""

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        result = func(*args, **(kwargs or {}))
        for leaf in tree_leaves((args, kwargs, result)):
            if isinstance(leaf, Tensor) and leaf.is_floating_point():
                assert leaf.dtype == torch.float64, f"{func} touches {leaf.dtype}"
        return result
