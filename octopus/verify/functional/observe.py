"""What a stack is seen to do, written down as a subject, so that the audits of dumps judge it.

Letters: T rows, H query heads, G key/value heads, B losses.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import torch
from torch import Tensor

from octopus.verify.case import Case
from octopus.verify.facets import EmbeddingGradients, Heads
from octopus.verify.findings import Finding, Witness
from octopus.verify.functional.kernel import KernelCall, kernel_calls
from octopus.verify.functional.stack import embedding_gradient, record
from octopus.verify.functional.trial import Trial
from octopus.verify.probe import Probed
from octopus.verify.rules import finding
from octopus.verify.subject import DenseMask, Subject


def kernel_subjects(trial: Trial) -> list[tuple[Subject, Probed]]:
    """One subject an attention layer: the mask that its kernel applies, and how it maps heads.

    Runs the row once and asks each layer's attention function, as the model calls it. A layer that is called with a
    sliding window is judged by it.
    """
    return [_kernel_subject(trial, layer, call) for layer, call in enumerate(kernel_calls(trial.stack))]


def _kernel_subject(trial: Trial, layer: int, call: KernelCall) -> tuple[Subject, Probed]:
    probed, head_dim = call.probe(), call.q_HTD.shape[-1]
    mask = DenseMask(seen_HQK=probed.seen_HNK, convention="found by probing the kernel")
    heads = Heads(
        query=len(call.q_HTD),
        key_value=len(call.k_GTD),
        dim=head_dim,
        used_H=probed.kv_head_H,
        gradient_HG=value_gradients(call),
    )
    name = f"{trial.subject.name}, attention layer {layer}"
    declared = trial.subject.declared
    if (window := call.settings.get("sliding_window")) is not None:
        declared = replace(declared, window=window)
    return replace(trial.subject, name=name, mask=mask, heads=heads, declared=declared), probed


def counted_twice(subject: Subject, probed: Probed) -> list[Finding]:
    """OCT115 for a kernel: a row counts a key more than once."""
    wrong = np.argwhere(probed.times_HNK > 1)
    if not len(wrong):
        return []
    head, query, key = (int(index) for index in wrong[0])
    times = probed.times_HNK[head, query, key]
    names = Case(subject).names
    return [
        finding(
            "OCT115",
            f"the kernel counts {names.say(key)} {times} times for {names.say(query)}",
            subject=subject,
            segments=(names.of(query), names.of(key)),
            count=len(np.unique(wrong[:, 1:], axis=0)),
            witness=Witness(query=query, key=key, expected="1", actual=str(times)),
            head=head,
        )
    ]


def value_gradients(call: KernelCall) -> np.ndarray:
    """float64 [H, G]: the largest gradient that value head g gets from the outputs of query head h alone."""
    with torch.enable_grad():
        v_GTD = call.v_GTD.clone().requires_grad_()
        out_HTD = call(call.q_HTD, call.k_GTD, v_GTD)
        found = [_gradient(out_TD.sum(), v_GTD).abs().amax(dim=(1, 2)) for out_TD in out_HTD]
    return torch.stack(found).double().cpu().numpy()


def _gradient(loss: Tensor, x: Tensor) -> Tensor:
    if not loss.requires_grad:
        return torch.zeros_like(x)
    (found,) = torch.autograd.grad(loss, [x], retain_graph=True, allow_unused=True, materialize_grads=True)
    return found


def gradient_subject(trial: Trial, losses: Sequence[np.ndarray] | None = None) -> Subject:
    """How far the loss of each group of rows reaches back into the input embeddings, from one forward pass.

    Args:
        trial: What to run.
        losses: Rows of each loss; every row by itself where None.
    """
    rows_B = [np.array([row]) for row in range(trial.subject.length)] if losses is None else losses
    recording = record(trial.stack)
    norms = []
    for rows in rows_B:
        # Squares, so that no part of the vocabulary's gradients cancels another's.
        loss = recording.logits_TV[torch.from_numpy(rows)].square().sum()
        norms.append(embedding_gradient(recording, loss).abs().amax(dim=-1))
    gradients = EmbeddingGradients(
        norms_BT=torch.stack(norms).double().cpu().numpy(), loss_rows=tuple(rows_B)
    )
    return replace(trial.subject, gradients=gradients)
