"""Mamba-2 by chunks equals single steps, in outputs, states and gradients, whatever the chunks and the padding."""

from __future__ import annotations

import copy
from dataclasses import replace

import pytest
import torch
from hand_made import WITH_MOUNT, Replay, plan_of
from tiny_models import tiny_granite
from torch import Tensor

from octopus.models.backbone import Backbone
from octopus.models.mamba2 import MambaInputs, mamba_chunks, mamba_step

HEADS, GROUPS, KEY_DIM, VALUE_DIM = 6, 2, 8, 5


def random_inputs(batch: int, tokens: int) -> tuple[MambaInputs, Tensor]:
    generator = torch.Generator().manual_seed(tokens)
    q, k, v, g, dt, skip, state = (
        torch.randn(batch, *shape, dtype=torch.float64, generator=generator)
        for shape in (
            (tokens, GROUPS, KEY_DIM),
            (tokens, GROUPS, KEY_DIM),
            (tokens, HEADS, VALUE_DIM),
            (tokens, HEADS),
            (tokens, HEADS),
            (tokens, HEADS),
            (HEADS, KEY_DIM, VALUE_DIM),
        )
    )
    return MambaInputs(q, k, v, -g.abs(), dt.abs(), skip), state


def by_steps(inputs: MambaInputs, state: Tensor) -> tuple[Tensor, Tensor]:
    outs = []
    for token in range(inputs.q_XGK.shape[1]):
        out, state = mamba_step(MambaInputs(*(x[:, token] for x in inputs)), state)
        outs.append(out)
    return torch.stack(outs, dim=1), state


def with_gradients(rule: object, inputs: MambaInputs, state: Tensor) -> list[Tensor]:
    """Outputs, final states and the gradients of a fixed function of both."""
    leaves = [x.clone().requires_grad_() for x in (*inputs, state)]
    out, final = rule(MambaInputs(*leaves[:-1]), leaves[-1])
    return [out, final, *torch.autograd.grad(out.sin().sum() + (final**2).sum(), leaves)]


@pytest.mark.parametrize(("tokens", "chunk_size"), [(1, 64), (2, 1), (64, 64), (65, 16), (130, 64)])
def test_chunks_equal_steps(tokens: int, chunk_size: int) -> None:
    """Catches: a decay taken once too often, a state lost between chunks, heads read with another group's keys."""
    inputs, state = random_inputs(2, tokens)
    expected = with_gradients(by_steps, inputs, state)
    actual = with_gradients(lambda x, s: mamba_chunks(x, s, chunk_size=chunk_size), inputs, state)
    for a, b in zip(expected, actual, strict=True):
        torch.testing.assert_close(b, a, rtol=1e-11, atol=1e-11)


def test_padding_of_unequal_lengths_does_nothing() -> None:
    """Catches: a padded token that decays or writes a state."""
    lengths = (70, 1, 33)
    inputs, state = random_inputs(3, max(lengths))
    for run, length in enumerate(lengths):
        for x in inputs:
            x[run, length:] = 0
    out, final = mamba_chunks(inputs, state)
    for run, length in enumerate(lengths):
        alone = MambaInputs(*(x[run : run + 1, :length] for x in inputs))
        expected_out, expected_final = by_steps(alone, state[run : run + 1])
        torch.testing.assert_close(out[run, :length], expected_out[0], rtol=0, atol=1e-11)
        torch.testing.assert_close(final[run], expected_final[0], rtol=0, atol=1e-11)


def test_strong_decay_stays_finite() -> None:
    inputs, state = random_inputs(1, 64)
    results = with_gradients(mamba_chunks, inputs._replace(g_XH=inputs.g_XH * 1000), state)
    assert all(x.isfinite().all() for x in results)


def test_a_mount_never_touches_a_state_and_a_rewind_recomputes_it() -> None:
    """Catches: mounted tokens that advance the reader's state or columns; a recompute pass that ends elsewhere.

    The first layer reads embeddings alone, so its states must be the same, bit by bit, with and without the mount.
    """
    states = []
    for branches in (WITH_MOUNT, tuple(replace(branch, mounts=()) for branch in WITH_MOUNT)):
        replay = Replay(Backbone(tiny_granite()), plan_of(branches))
        for spans in (((0, 9),), ((9, 16),), ((17, 20),)):
            replay.step(*spans)
        before = copy.deepcopy(replay.storage)
        kept = replay.state_of_row[19]
        states.append((before.conv[0, kept], before.recurrent[0, kept], before.recurrent[1, kept]))
        step = replay.lower((17, 20), recompute=True)
        replay.backbone.paged(step, replay.storage)
        assert torch.equal(replay.storage.recurrent[:, step.runs[0].state_out], before.recurrent[:, kept])
    (conv, first, later), (plain_conv, plain_first, plain_later) = states
    assert torch.equal(conv, plain_conv) and torch.equal(first, plain_first)
    assert not torch.equal(later, plain_later), "what the mount carries does reach later layers' states"
