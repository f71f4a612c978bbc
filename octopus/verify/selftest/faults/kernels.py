"""Faults in the attention function: heads, gradients, masks that are too weak, sums that reach across rows.

Each wraps the library's function.

Letters: B = 1, H query heads, G key/value heads, R = H / G, T rows, D head dimension.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn

from octopus.verify.functional.kernel import LibraryAttention
from octopus.verify.selftest.fault import Fault

Result = tuple[Tensor, Tensor | None]


def _query_order(order: Callable[[int, int], list[int]]) -> Callable[[LibraryAttention], LibraryAttention]:
    """Query heads go to the function in another order and their outputs come back in the old one."""

    def wrap(function: LibraryAttention) -> LibraryAttention:
        def wrapped(module: nn.Module, q: Tensor, k: Tensor, v: Tensor, mask: Any, **settings: Any) -> Result:
            places = torch.tensor(order(q.shape[1], k.shape[1]))
            out_BTHD, weights = function(module, q[:, places], k, v, mask, **settings)
            return out_BTHD[:, :, places.argsort()], weights

        return wrapped

    return wrap


def _tiled(heads: int, kv_heads: int) -> list[int]:
    return [head for kv_head in range(kv_heads) for head in range(kv_head, heads, kv_heads)]


def _next_group(heads: int, kv_heads: int) -> list[int]:
    group = heads // kv_heads
    return [(head + group) % heads for head in range(heads)]


def _inputs(
    change: Callable[[Tensor, Tensor], tuple[Tensor, Tensor]],
) -> Callable[[LibraryAttention], LibraryAttention]:
    """Keys and values `[B, G, T, D]` reach the function changed."""

    def wrap(function: LibraryAttention) -> LibraryAttention:
        def wrapped(module: nn.Module, q: Tensor, k: Tensor, v: Tensor, mask: Any, **settings: Any) -> Result:
            return function(module, q, *change(k, v), mask, **settings)

        return wrapped

    return wrap


def _outputs(change: Callable[[Tensor, Tensor], Tensor]) -> Callable[[LibraryAttention], LibraryAttention]:
    """Outputs `[B, T, H, D]` come back changed; the change also gets the values."""

    def wrap(function: LibraryAttention) -> LibraryAttention:
        def wrapped(module: nn.Module, q: Tensor, k: Tensor, v: Tensor, mask: Any, **settings: Any) -> Result:
            out_BTHD, weights = function(module, q, k, v, mask, **settings)
            return change(out_BTHD, v), weights

        return wrapped

    return wrap


def _heads_mixed(out_BTHD: Tensor, v: Tensor) -> Tensor:
    mixed = out_BTHD.clone()
    mixed[:, :, 0] = (out_BTHD[:, :, 0] + out_BTHD[:, :, -1]) / 2
    return mixed


def _one_head_without_gradient(out_BTHD: Tensor, v: Tensor) -> Tensor:
    return torch.cat([out_BTHD[:, :, :1], out_BTHD[:, :, 1:2].detach(), out_BTHD[:, :, 2:]], dim=2)


def _too_weak(out_BTHD: Tensor, v: Tensor) -> Tensor:
    """As if every key, seen or not, had a little weight."""
    mean_BHD = v.mean(dim=2).repeat_interleave(out_BTHD.shape[2] // v.shape[1], dim=1)
    return out_BTHD + 0.02 * mean_BHD[:, None]


def _gradient_leaks(out_BTHD: Tensor, v: Tensor) -> Tensor:
    """Every row's gradient reaches every value; what comes forward is the same."""
    total_BHD = v.sum(dim=2).repeat_interleave(out_BTHD.shape[2] // v.shape[1], dim=1)
    return out_BTHD + 0.1 * (total_BHD - total_BHD.detach())[:, None]


def _gradient_doubled(k: Tensor, v: Tensor) -> tuple[Tensor, Tensor]:
    return k, 2 * v - v.detach()


def _noisy(out_BTHD: Tensor, v: Tensor) -> Tensor:
    return out_BTHD * (1 + 0.1 * torch.randn_like(out_BTHD))


def _values_one_row_off(k: Tensor, v: Tensor) -> tuple[Tensor, Tensor]:
    return k, v.roll(1, dims=2)


KERNELS = (
    Fault(
        name="mask_too_weak",
        code="OCT101",
        about="Hidden keys keep a little weight: the mask's number is not low enough.",
        kernel=_outputs(_too_weak),
    ),
    Fault(
        name="values_one_row_off",
        code="OCT101",
        about="Keys and values of a row come from two different rows.",
        kernel=_inputs(_values_one_row_off),
    ),
    Fault(
        name="heads_tiled",
        code="OCT302",
        about="Query head h reads key/value head h % G instead of h // R.",
        kernel=_query_order(_tiled),
    ),
    Fault(
        name="heads_of_the_next_group",
        code="OCT302",
        about="Every query head reads the key/value head after its own.",
        kernel=_query_order(_next_group),
    ),
    Fault(
        name="heads_mixed",
        code="OCT302",
        about="The first query head also gets what the last one reads.",
        kernel=_outputs(_heads_mixed),
    ),
    Fault(
        name="head_without_gradient",
        code="OCT304",
        about="One query head sends no gradient to the values it reads.",
        kernel=_outputs(_one_head_without_gradient),
    ),
    Fault(
        name="gradient_leaks",
        code="OCT401",
        about="The forward pass is right and the backward pass reaches hidden rows.",
        kernel=_outputs(_gradient_leaks),
    ),
    Fault(
        name="keys_and_values_detached",
        code="OCT402",
        about="No gradient flows through attention to other rows.",
        kernel=_inputs(lambda k, v: (k.detach(), v.detach())),
    ),
    Fault(
        name="keys_detached",
        code="OCT403",
        about="Gradients flow through values only.",
        kernel=_inputs(lambda k, v: (k.detach(), v)),
    ),
    Fault(
        name="gradient_doubled",
        code="OCT403",
        about="A shared value's gradient counts twice.",
        kernel=_inputs(_gradient_doubled),
    ),
    Fault(
        name="noise",
        code="OCT509",
        about="Two runs of the same row differ: dropout left on, or sums in no fixed order.",
        kernel=_outputs(_noisy),
    ),
)
