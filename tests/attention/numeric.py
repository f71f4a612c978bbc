"""What the numeric tests share: random plans, random inputs, gradients, and an alarm for lost precision.

Letters: T rows, H query heads, G key/value heads, D head dimension.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

from octopus.attention.plan import Plan, Slice
from octopus.attention.reference import attend_reference
from octopus.attention.rope import Rope
from octopus.attention.sliced import attend_sliced


def make_plan(positions: list[int], slices: list[Slice]) -> Plan:
    """A plan written by hand. Attention reads positions and slices only; the rest is filler."""
    rows = len(positions)
    return Plan(
        tokens_T=np.arange(rows),
        positions_T=np.array(positions, dtype=np.int64),
        subtree_ends_T=np.full(rows, rows),
        predecessors_T=np.arange(rows) - 1,
        slices=tuple(slices),
        starts={},
        wait_edges=(),
    )


def causal_plan(rows: int, start_position: int = 0) -> Plan:
    """One segment: plain causal attention."""
    square = Slice(q0=0, q1=rows, k0=0, k1=rows, causal=True, shift=0)
    return make_plan(list(range(start_position, start_position + rows)), [square])


def random_plan(seed: int, *, segments: int = 7, longest: int = 5) -> Plan:
    """A random forest of segments in pre-order with mounts of random shifts, and some rows that see nothing.

    It knows nothing of graphs or of time: any part may be mounted that its readers do not see otherwise, wherever it
    lies, so it reaches slice sets (negative shifts, sources after readers) that few real episodes have.
    """
    rng = np.random.default_rng(seed)
    parents = [int(rng.integers(-1, index)) if index else -1 for index in range(segments)]
    order: list[int] = []
    stack = [index for index in range(segments) if parents[index] < 0]
    while stack:
        order.append(stack.pop())
        stack += [index for index in range(segments) if parents[index] == order[-1]]
    lengths = rng.integers(0, longest + 1, segments)
    lengths[order[0]] = longest
    start = dict(zip(order, np.cumsum([0, *lengths[order]]).tolist(), strict=False))
    descends = {(a, a) for a in range(segments)}
    for index in range(segments):
        descends |= {(index, a) for a in range(index) if (parents[index], a) in descends}
    # A childless root may be padding: its rows see nothing and nobody sees them.
    blind = {i for i in order[1:] if parents[i] < 0 and i not in parents and rng.random() < 0.7}

    slices: list[Slice] = []
    positions = np.zeros(lengths.sum(), dtype=np.int64)
    views: dict[int, set[int]] = {-1: set()}
    next_position = {-1: 0}
    for index in order:
        a, b = start[index], start[index] + int(lengths[index])
        subtree = [i for i in order if (i, index) in descends]
        end = max(start[i] + int(lengths[i]) for i in subtree)
        first = next_position[parents[index]] + int(rng.integers(0, 30))
        positions[a:b] = np.arange(first, first + b - a)
        next_position[index] = first + b - a
        views[index] = views[parents[index]] | set(range(a, b))
        if index in blind:
            continue
        if a < b:
            slices.append(Slice(q0=a, q1=b, k0=a, k1=b, causal=True, shift=0))
        if a < b < end:
            slices.append(Slice(q0=b, q1=end, k0=a, k1=b, causal=False, shift=0))
        for source in rng.permutation(segments)[: int(rng.integers(0, 3))].tolist():
            size = int(lengths[source])
            k0 = start[source] + int(rng.integers(0, size + 1))
            k1 = start[source] + int(rng.integers(0, size + 1))
            part = set(range(k0, k1))
            if a == end or not part or source in blind or part & (views[index] | set(range(a, end))):
                continue
            slices.append(Slice(q0=a, q1=end, k0=k0, k1=k1, causal=False, shift=int(rng.integers(-40, 41))))
            views[index] |= part
    shuffled = [slices[i] for i in rng.permutation(len(slices))]
    return make_plan(positions.tolist(), shuffled)


def make_rope(rotary_dim: int, base: float = 10_000.0) -> Rope:
    """The usual frequencies, taken over the rotary dimensions."""
    exponents = torch.arange(0, rotary_dim, 2, dtype=torch.float64) / rotary_dim
    return Rope(inverse_frequencies_R=base**-exponents)


def random_inputs(
    rows: int, *, kv_heads: int, group: int, head_dim: int, dtype: torch.dtype = torch.float64, seed: int = 0
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """q_HTD, k_GTD, v_GTD, and a gradient for the output."""
    draw = torch.Generator().manual_seed(seed)
    heads = kv_heads * group
    q_HTD, k_GTD, v_GTD, d_out_HTD = (
        torch.randn(count, rows, head_dim, generator=draw, dtype=torch.float64).to(dtype)
        for count in (heads, kv_heads, kv_heads, heads)
    )
    return q_HTD, k_GTD, v_GTD, d_out_HTD


RESULTS = ("out", "lse", "dq", "dk", "dv")


def with_gradients(attend: Any, *inputs: Tensor, **options: Any) -> tuple[Tensor, ...]:
    """`RESULTS` of an attention function, given what `random_inputs` gives."""
    *qkv, d_out_HTD = inputs
    leaves = [x.detach().clone().requires_grad_() for x in qkv]
    out_HTD, lse_HT = attend(*leaves, **options)
    gradients = torch.autograd.grad(out_HTD, leaves, d_out_HTD, materialize_grads=True)
    return out_HTD.detach(), lse_HT, *gradients


def assert_equals_reference(
    plan: Plan, *, kv_heads: int, group: int, head_dim: int, rope: Rope | None
) -> None:
    """The sliced backend on random inputs, gradients included, to 1e-12 in float64."""
    inputs = random_inputs(plan.length, kv_heads=kv_heads, group=group, head_dim=head_dim)
    options = {"plan": plan, "rope": rope, "scale": head_dim**-0.5}
    expected = with_gradients(attend_reference, *inputs, **options)
    actual = with_gradients(attend_sliced, *inputs, **options)
    for name, a, b in zip(RESULTS, actual, expected, strict=True):
        torch.testing.assert_close(a, b, rtol=0, atol=1e-12, msg=lambda text, name=name: f"{name}: {text}")


class OnlyFloat64(TorchDispatchMode):
    """Fails at the first operation, backward included, that reads or makes a floating-point tensor below float64."""

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        result = func(*args, **(kwargs or {}))
        for leaf in tree_leaves((args, kwargs, result)):
            if isinstance(leaf, Tensor) and leaf.is_floating_point():
                assert leaf.dtype == torch.float64, f"{func} handles {leaf.dtype}"
        return result
