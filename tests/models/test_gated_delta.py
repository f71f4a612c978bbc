"""The chunked delta rule equals single steps, in outputs, states and gradients, whatever the chunks and the padding."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

from octopus.models.gated_delta import DeltaInputs, chunk_rule, step_rule

HEADS, KEY_DIM, VALUE_DIM = 3, 8, 5


def random_inputs(batch: int, tokens: int) -> tuple[DeltaInputs, Tensor]:
    generator = torch.Generator().manual_seed(tokens)
    q, k, v, g, beta, state = (
        torch.randn(shape, dtype=torch.float64, generator=generator)
        for shape in (
            (batch, tokens, HEADS, KEY_DIM),
            (batch, tokens, HEADS, KEY_DIM),
            (batch, tokens, HEADS, VALUE_DIM),
            (batch, tokens, HEADS),
            (batch, tokens, HEADS),
            (batch, HEADS, KEY_DIM, VALUE_DIM),
        )
    )
    return DeltaInputs(q, k, v, -g.abs(), beta.sigmoid()), state


def by_steps(inputs: DeltaInputs, state: Tensor) -> tuple[Tensor, Tensor]:
    outs = []
    for token in range(inputs.q_XHK.shape[1]):
        out, state = step_rule(*(x[:, token] for x in inputs), state)
        outs.append(out)
    return torch.stack(outs, dim=1), state


def with_gradients(rule: object, inputs: DeltaInputs, state: Tensor, *options: int) -> list[Tensor]:
    """Outputs, final states and the gradients of a fixed function of both."""
    leaves = [x.clone().requires_grad_() for x in (*inputs, state)]
    out, final = rule(DeltaInputs(*leaves[:5]), leaves[5], *options)
    gradients = torch.autograd.grad((out.sin().sum() + (final**2).sum()), leaves)
    return [out, final, *gradients]


def by_chunks(inputs: DeltaInputs, state: Tensor, chunk_size: int) -> tuple[Tensor, Tensor]:
    return chunk_rule(*inputs, state, chunk_size=chunk_size)


@pytest.mark.parametrize("chunk_size", [1, 16, 64])
@pytest.mark.parametrize("tokens", [1, 2, 63, 64, 65, 150])
def test_chunks_equal_steps(tokens: int, chunk_size: int) -> None:
    inputs, state = random_inputs(2, tokens)
    expected = with_gradients(by_steps, inputs, state)
    actual = with_gradients(by_chunks, inputs, state, chunk_size)
    for a, b in zip(expected, actual, strict=True):
        torch.testing.assert_close(b, a, rtol=1e-11, atol=1e-12)


def test_padding_of_unequal_lengths_does_nothing() -> None:
    lengths = (70, 1, 33)
    inputs, state = random_inputs(3, max(lengths))
    for run, length in enumerate(lengths):
        for x in inputs:
            x[run, length:] = 0
    out, final = chunk_rule(*inputs, state)
    for run, length in enumerate(lengths):
        alone = DeltaInputs(*(x[run : run + 1, :length] for x in inputs))
        expected_out, expected_final = by_steps(alone, state[run : run + 1])
        torch.testing.assert_close(out[run, :length], expected_out[0], rtol=0, atol=1e-12)
        torch.testing.assert_close(final[run], expected_final[0], rtol=0, atol=1e-12)


def test_strong_decay_stays_finite() -> None:
    inputs, state = random_inputs(1, 64)
    results = with_gradients(by_chunks, inputs._replace(g_XH=inputs.g_XH * 1000), state, 64)
    assert all(x.isfinite().all() for x in results)


def test_a_zero_key_has_a_finite_gradient() -> None:
    inputs, state = random_inputs(1, 4)
    inputs.k_XHK[:] = 0
    assert all(x.isfinite().all() for x in with_gradients(by_chunks, inputs, state, 64))
