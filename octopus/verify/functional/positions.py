"""Positions as the attention really has them (OCT204, 206 of kernels that rotate inside; key caches of all others).

Letters: T rows, G key/value heads, D head dimension.
"""

from __future__ import annotations

from collections import Counter
from contextlib import ExitStack
from dataclasses import replace
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from octopus.verify.facets import Heads, KeyCache, Rotary
from octopus.verify.findings import Finding
from octopus.verify.functional.kernel import KernelCall, kernel_calls
from octopus.verify.functional.stack import Stack, StackRotary
from octopus.verify.functional.trial import Trial
from octopus.verify.probe_positions import probe_distances, probe_unturned
from octopus.verify.runs import UNKNOWN
from octopus.verify.subject import Positions, Subject


def kernel_positions(trial: Trial) -> list[Finding]:
    """OCT204 and OCT206, in every attention layer of a stack whose attention function rotates."""
    if not trial.stack.rotates_inside:
        return []
    expected_TT, findings = expected_distances(trial), []
    for layer, (call, rotary) in enumerate(zip(kernel_calls(trial.stack), trial.stack.rotaries, strict=True)):
        scale = float(call.settings["scaling"])
        found_TT = probe_distances(
            call,
            call.shape,
            inverse_frequencies_R=rotary.inverse_frequencies_R,
            scale=scale * rotary.attention_factor**2,
        )
        findings += _wrong_distances(trial, layer, found_TT, expected_TT)
        turned_TT = probe_unturned(
            call, call.shape, rotary_dim=2 * len(rotary.inverse_frequencies_R), scale=scale
        )
        findings += _turned(trial, layer, turned_TT)
    return findings


def expected_distances(trial: Trial) -> np.ndarray:
    """float64 `[T, T]`: position of a row minus that at which it sees a key; NaN where it must not see it."""
    lineage = trial.lineage
    expected_TT = np.full((lineage.length, lineage.length), np.nan)
    for run in lineage.runs:
        rows = np.arange(run.start, run.stop)
        for piece in lineage.outside(run):
            if UNKNOWN not in (piece.at, run.position):
                seen_at = piece.at + np.arange(piece.k1 - piece.k0)
                expected_TT[run.start : run.stop, piece.k0 : piece.k1] = (
                    lineage.positions_T[rows, None] - seen_at
                )
        own_TT = (rows[:, None] - rows).astype(float)
        expected_TT[run.start : run.stop, run.start : run.stop] = np.where(own_TT >= 0, own_TT, np.nan)
    return expected_TT


def _wrong_distances(
    trial: Trial, layer: int, found_TT: np.ndarray, expected_TT: np.ndarray
) -> list[Finding]:
    """One finding for a layer: where whole numbers of positions differ; who sees whom is left to OCT101 and OCT102."""
    off_TT = np.rint(found_TT - expected_TT)
    wrong = np.argwhere(np.nan_to_num(off_TT) != 0)
    if not len(wrong):
        return []
    query, key = (int(row) for row in wrong[0])
    offsets = Counter(int(off) for off in off_TT[tuple(wrong.T)])
    told = ", ".join(f"{off:+d} ({count})" for off, count in offsets.most_common(3))
    message = (
        f"{trial.case.names.say(query)} sees {trial.case.names.say(key)} at distance {found_TT[query, key]:.0f}, "
        f"not {expected_TT[query, key]:.0f}; offsets found (pairs): {told}"
    )
    return [trial.found("OCT204", message, query=query, key=key, count=len(wrong), layer=layer)]


def _turned(trial: Trial, layer: int, turned_TT: np.ndarray) -> list[Finding]:
    wrong = np.argwhere(turned_TT)
    if not len(wrong):
        return []
    query, key = (int(row) for row in wrong[0])
    message = "a dimension that carries no position turns with it: the partial rotary factor is not kept"
    return [trial.found("OCT206", message, query=query, key=key, count=len(wrong), layer=layer)]


@torch.no_grad()
def key_cache_subjects(trial: Trial) -> list[Subject]:
    """One subject an attention layer: keys before and after rotation, for a stack that rotates before its attention.

    Takes the output of each layer's `k_proj` and what reaches the attention function; positions are those of the
    descent. Empty where the stack rotates inside, has no `k_proj`, or normalises keys in between.
    """
    if trial.stack.rotates_inside or not trial.stack.rotaries:
        return []
    before: list[Tensor] = []
    with ExitStack() as hooks:
        for module in _key_projections(trial.stack):
            hooks.callback(module.register_forward_hook(lambda _, args, out: before.append(out[0])).remove)
        calls = kernel_calls(trial.stack)
    found = zip(before, calls, trial.stack.rotaries, strict=True) if len(before) == len(calls) else ()
    return [_cached(trial, layer, *of_layer) for layer, of_layer in enumerate(found)]


def _key_projections(stack: Stack) -> list[nn.Module]:
    modules = () if stack.model is None else stack.model.modules()
    attentions: list[Any] = [module for module in modules if hasattr(module, "k_proj")]
    return [] if any(hasattr(module, "k_norm") for module in attentions) else [m.k_proj for m in attentions]


def _cached(trial: Trial, layer: int, keys_TC: Tensor, call: KernelCall, rotary: StackRotary) -> Subject:
    kv_heads, _, head_dim = call.k_GTD.shape
    turn = Rotary(dim=2 * len(rotary.inverse_frequencies_R), theta=rotary.theta, interleaved=False)
    return replace(
        trial.subject,
        name=f"{trial.subject.name}, keys of layer {layer}",
        heads=Heads(query=len(call.q_HTD), key_value=kv_heads, dim=head_dim, rotary=turn),
        positions=Positions(ids_AT=trial.lineage.positions_T[None], dtype="int64"),
        keys=KeyCache(
            before_TGD=keys_TC.unflatten(-1, (kv_heads, head_dim)).double().cpu().numpy(),
            after_TGD=call.k_GTD.transpose(0, 1).double().cpu().numpy(),
            dtype=str(call.k_GTD.dtype).removeprefix("torch."),
            layer=layer,
        ),
    )
