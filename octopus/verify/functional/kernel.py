"""The attention function inside a Hugging Face model: wrapped while it runs, or taken out with what it was called with.

The library looks the function up by name at every call. Here the entry under that name is replaced for a while, so the
model, its masks and all decisions that hang on the name stay as they are.

Letters: B = 1, H query heads, G key/value heads, T rows, D head dimension.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn
from transformers.modeling_utils import ALL_ATTENTION_FUNCTIONS

from octopus.verify.audits.audit import Inconclusive
from octopus.verify.functional.stack import Stack
from octopus.verify.probe import Probed, Shape, probe

LibraryAttention = Callable[..., tuple[Tensor, Tensor | None]]
"""`(module, q_BHTD, k_BGTD, v_BGTD, attention_mask, **settings)` to `(out_BTHD, weights or None)`."""


@contextmanager
def wrapped_attention(
    model: nn.Module | None, wrap: Callable[[LibraryAttention], LibraryAttention]
) -> Iterator[None]:
    """While the context lasts, every attention layer calls `wrap(the function it would have called)`. Contexts nest.

    Raises Inconclusive if the model's attention is not looked up by name (it is eager, or no model of the library).
    """
    config: Any = getattr(model, "config", None)
    name = getattr(config, "_attn_implementation", None)
    if name not in ALL_ATTENTION_FUNCTIONS:
        raise Inconclusive(
            f"attention {name!r} cannot be wrapped; load the model with sdpa, flex_attention or another"
        )
    before = ALL_ATTENTION_FUNCTIONS[name]
    ALL_ATTENTION_FUNCTIONS[name] = wrap(before)
    try:
        yield
    finally:
        ALL_ATTENTION_FUNCTIONS.pop(name)  # what the library itself registered comes back
        if ALL_ATTENTION_FUNCTIONS.get(name) is not before:
            ALL_ATTENTION_FUNCTIONS[name] = before


@dataclass(frozen=True, kw_only=True, eq=False)
class KernelCall:
    """One call of the attention function, to be made again with other tensors but the same mask and settings.

    Attributes:
        function: The function.
        module: The attention module.
        mask: What the model made as its mask.
        settings: All keywords.
        q_HTD, k_GTD, v_GTD: What it was called with.
    """

    function: LibraryAttention
    module: nn.Module
    mask: Any
    settings: dict[str, Any]
    q_HTD: Tensor
    k_GTD: Tensor
    v_GTD: Tensor

    def __call__(self, q_HTD: Tensor, k_GTD: Tensor, v_GTD: Tensor) -> Tensor:
        """The outputs [H, T, D] for other queries, keys and values of the same shapes."""
        out, _ = self.function(self.module, q_HTD[None], k_GTD[None], v_GTD[None], self.mask, **self.settings)
        return out[0].transpose(0, 1)

    @property
    def shape(self) -> Shape:
        """What the kernel was called with."""
        (heads, queries, head_dim), (kv_heads, keys) = self.q_HTD.shape, self.k_GTD.shape[:2]
        return Shape(
            heads=heads,
            kv_heads=kv_heads,
            queries=queries,
            keys=keys,
            head_dim=head_dim,
            dtype=self.q_HTD.dtype,
            device=self.q_HTD.device,
        )

    def probe(self) -> Probed:
        """Who sees whom, asked of the kernel as the model calls it."""
        return probe(self, self.shape)


@torch.no_grad()
def kernel_calls(stack: Stack) -> list[KernelCall]:
    """Runs the row once; returns the call of each attention layer, in order.

    Raises Inconclusive if a function gives another result when it is called again: then it cannot be probed.
    """
    calls: list[KernelCall] = []

    def listening(function: LibraryAttention) -> LibraryAttention:
        def listen(
            module: nn.Module, q: Tensor, k: Tensor, v: Tensor, mask: Any, **settings: Any
        ) -> tuple[Tensor, Tensor | None]:
            calls.append(
                KernelCall(
                    function=function,
                    module=module,
                    mask=mask,
                    settings=settings,
                    q_HTD=q[0].detach(),
                    k_GTD=k[0].detach(),
                    v_GTD=v[0].detach(),
                )
            )
            return function(module, q, k, v, mask, **settings)

        return listen

    with wrapped_attention(stack.model, listening):
        stack.run(stack.tokens_T)
    for call in calls:
        first, second = (call(call.q_HTD, call.k_GTD, call.v_GTD) for _ in range(2))
        if not torch.equal(first, second):
            raise Inconclusive("cannot certify: two calls of the attention function differ (OCT509)")
    return calls
