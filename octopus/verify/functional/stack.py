"""A model as somebody's training code calls it, and what is recorded of one call.

Letters: T rows, C hidden channels, V vocabulary, R half of the rotary dimensions.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from octopus.verify.audits.audit import Inconclusive


@dataclass(frozen=True, kw_only=True, eq=False)
class StackRotary:
    """How an attention layer of a stack rotates queries and keys (half-split layout).

    Attributes:
        inverse_frequencies_R: Radians a position; twice their number of dimensions turn.
        theta: The base that they were made from.
        inside: Whether the attention function rotates; otherwise it is given rotated queries and keys.
        attention_factor: What both sides are multiplied by where they turn (YaRN).
    """

    inverse_frequencies_R: np.ndarray
    theta: float
    inside: bool
    attention_factor: float = 1.0


@dataclass(frozen=True, kw_only=True, eq=False)
class Stack:
    """A model that runs one packed row.

    Attributes:
        name: For reports.
        model: Where the embedding and the decoder layers are found; only looked at, never changed for good. None for a
            black box: then no gradient is audited and no layer is named.
        run: Token ids [T] to logits [T, V], through everything that is audited: mask making, positions, kernels. Must
            use `model`, and keep autograd where gradients are audited.
        tokens_T: The row's token ids.
        rotaries: How each attention layer rotates, in order; none where positions are not to be audited.
    """

    name: str
    model: nn.Module | None
    run: Callable[[Tensor], Tensor]
    tokens_T: Tensor
    rotaries: tuple[StackRotary, ...] = ()

    @property
    def rotates_inside(self) -> bool:
        """Whether the attention function itself rotates, as far as that is known."""
        return any(rotary.inside for rotary in self.rotaries)

    @property
    def embedding(self) -> nn.Embedding | None:
        """The table of input embeddings: the largest one."""
        modules = () if self.model is None else self.model.modules()
        tables = (module for module in modules if isinstance(module, nn.Embedding))
        return max(tables, key=lambda table: table.num_embeddings, default=None)

    @property
    def layers(self) -> list[nn.Module]:
        """The decoder layers: the longest module list."""
        modules = () if self.model is None else self.model.modules()
        lists = (module for module in modules if isinstance(module, nn.ModuleList))
        return list(max(lists, key=len, default=()))


@dataclass(frozen=True, kw_only=True, eq=False)
class Recording:
    """One call.

    Attributes:
        embedded_TC: The input embeddings, a leaf with autograd; None if there is no embedding table.
        layers: Output [T, C] of each decoder layer, in order.
        logits_TV: What came out.
    """

    embedded_TC: Tensor | None
    layers: tuple[Tensor, ...]
    logits_TV: Tensor


def record(stack: Stack, tokens_T: Tensor | None = None) -> Recording:
    """Runs the row, or one with other tokens, and records every layer.

    Raises:
        ValueError: the run used the model's embedding more than once, or gave other than [T, V].
    """
    tokens_T = stack.tokens_T if tokens_T is None else tokens_T
    embedded: list[Tensor] = []
    layers: list[Tensor] = []

    def lead_in(module: nn.Module, args: Any, output: Tensor) -> Tensor:
        embedded.append(output.detach().clone().requires_grad_(torch.is_grad_enabled()))
        return embedded[-1]

    def keep(module: nn.Module, args: Any, output: Any) -> None:
        layers.append(_rows(output if isinstance(output, Tensor) else output[0]))

    with ExitStack() as hooks:
        if stack.embedding is not None:
            hooks.callback(stack.embedding.register_forward_hook(lead_in).remove)
        for layer in stack.layers:
            hooks.callback(layer.register_forward_hook(keep).remove)
        logits_TV = _rows(stack.run(tokens_T))
    if len(embedded) > 1 or logits_TV.shape[0] != len(tokens_T):
        raise ValueError(
            f"{stack.name} looked {len(embedded)} times into its embedding and gave {tuple(logits_TV.shape)}; "
            f"one row of {len(tokens_T)} tokens must go through it once"
        )
    return Recording(embedded_TC=embedded[0] if embedded else None, layers=tuple(layers), logits_TV=logits_TV)


def embedding_gradient(recording: Recording, outputs: Tensor) -> Tensor:
    """Gradient [T, C] of a scalar of the recording with respect to each row's input embedding; the graph is kept.

    Raises Inconclusive if the run did not use an embedding table of the model.
    """
    if recording.embedded_TC is None:
        raise Inconclusive(
            "the run uses no embedding table of the model: gradients cannot be followed to the input"
        )
    if not outputs.requires_grad:
        return torch.zeros_like(_rows(recording.embedded_TC))
    (found,) = torch.autograd.grad(
        outputs, [recording.embedded_TC], retain_graph=True, allow_unused=True, materialize_grads=True
    )
    return _rows(found)


def _rows(x: Tensor) -> Tensor:
    """Without the batch dimension of one."""
    return x[0] if x.ndim == 3 else x
