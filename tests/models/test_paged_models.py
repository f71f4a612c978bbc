"""Chunked prefill and batched decode over a store equal the packed forward, and no unseen slot matters."""

from __future__ import annotations

import copy
from collections.abc import Callable
from dataclasses import replace
from functools import partial

import numpy as np
import pytest
import torch
from hand_made import TREE, WITH_MOUNT, Replay, plan_of
from tiny_models import EVERY_FAMILY, tiny_gemma3, tiny_qwen35

from octopus.attention.exports import dense_view
from octopus.attention.step_plan import StepPlan
from octopus.models.backbone import Backbone

FAMILIES = pytest.mark.parametrize("build", EVERY_FAMILY)


def replayed(build: Callable) -> Replay:
    """The tree with a mount in steps: the trunk in chunks, then branches side by side in chunks and single tokens."""
    replay = Replay(Backbone(build()), plan_of(WITH_MOUNT))
    replay.step((0, 1))
    replay.step((1, 5))
    replay.step((5, 9))
    replay.step((9, 12), (23, 25))
    replay.step((12, 15), (16, 17), (25, 26))
    # Branch 3 begins in the step that computes the last token it mounts.
    replay.step((17, 18), (15, 16), (26, 27))
    replay.step((18, 22))
    replay.step((22, 23))
    return replay


@FAMILIES
def test_steps_equal_the_packed_pass(build: Callable) -> None:
    replay = replayed(build)
    with torch.no_grad():
        packed_TC = replay.backbone.packed(replay.plan)
    assert (replay.hidden_TC() - packed_TC).abs().max() < 1e-10


def seen_slots(step: StepPlan) -> np.ndarray:
    return np.concatenate(
        [np.concatenate([run.own.slots_K, *(r.slots_K for r in run.keys)]) for run in step.runs]
    )


@pytest.mark.parametrize("spoiled", ["keys", "values", "both"])
@FAMILIES
def test_unseen_slots_change_nothing(build: Callable, spoiled: str) -> None:
    replay = replayed(build)
    step = replay.lower((22, 23), (26, 27))
    clean = copy.deepcopy(replay.storage)
    expected = replay.backbone.paged(step, clean)

    unseen = np.setdiff1d(np.arange(replay.storage.keys.shape[1]), seen_slots(step))
    other_states = np.setdiff1d(np.arange(replay.storage.conv.shape[1]), [run.state_in for run in step.runs])
    for name in ("keys", "values") if spoiled == "both" else (spoiled,):
        getattr(replay.storage, name)[:, unseen] = torch.nan
    replay.storage.conv[:, other_states] = torch.nan
    replay.storage.recurrent[:, other_states] = torch.nan
    assert torch.equal(replay.backbone.paged(step, replay.storage), expected)


def test_slots_beyond_the_window_change_nothing() -> None:
    """Catches: a sliding layer that reads what its window hides, be it written, near in the store, or mounted."""
    replay = replayed(partial(tiny_gemma3, layer_types=["sliding_attention"] * 4, window=5))
    step = replay.lower((22, 23))
    expected = replay.backbone.paged(step, copy.deepcopy(replay.storage))
    visible_TT, effective_TT = dense_view(replay.plan)
    last = int(replay.plan.positions_T[22])
    hidden = np.flatnonzero(visible_TT[22] & (effective_TT[22] <= last - 5))
    assert set(hidden) & set(range(11, 16)), "some of what is mounted stands beyond the window"
    replay.storage.keys[:, replay.slots_T[hidden]] = torch.nan
    replay.storage.values[:, replay.slots_T[hidden]] = torch.nan
    assert torch.equal(replay.backbone.paged(step, replay.storage), expected)
    last_seen = replay.slots_T[np.flatnonzero(visible_TT[22] & (effective_TT[22] == last - 4))]
    replay.storage.values[:, last_seen] += 1
    assert not torch.equal(replay.backbone.paged(step, replay.storage), expected)


def test_sliding_layers_keep_as_much_as_full_ones() -> None:
    """Catches: KV of sliding layers missing from a store, whose tokens a later reader may see near."""
    replay = replayed(tiny_gemma3)
    assert replay.backbone.kv_shape.attention_layers == 4
    assert replay.storage.keys[:, replay.slots_T].isfinite().all()


@FAMILIES
def test_a_seen_slot_matters(build: Callable) -> None:
    replay = replayed(build)
    step = replay.lower((22, 23))
    expected = replay.backbone.paged(step, copy.deepcopy(replay.storage))
    mounted = next(part for part in step.runs[0].keys if part.shift)
    replay.storage.values[:, mounted.slots_K[0]] += 1
    assert not torch.equal(replay.backbone.paged(step, replay.storage), expected)


def test_a_recompute_pass_yields_states_and_keeps_what_is_stored() -> None:
    replay = replayed(tiny_qwen35)
    before = copy.deepcopy(replay.storage)
    kept = replay.state_of_row[8]
    step = replay.lower((5, 9), recompute=True)
    hidden = replay.backbone.paged(step, replay.storage)

    assert torch.equal(hidden, torch.stack([replay.hidden[row] for row in range(5, 9)]))
    for name in ("keys", "values"):
        assert torch.equal(getattr(before, name).isnan(), getattr(replay.storage, name).isnan())
        assert torch.equal(getattr(before, name).nan_to_num(), getattr(replay.storage, name).nan_to_num())
    again = step.runs[0].state_out
    assert again != kept
    assert torch.equal(replay.storage.recurrent[:, again], before.recurrent[:, kept])
    assert torch.equal(replay.storage.conv[:, again], before.conv[:, kept])


def test_states_are_read_before_any_is_written() -> None:
    """Two children of one state, the first of which takes over its slot: both start from what was there."""
    replay = Replay(Backbone(tiny_qwen35()), plan_of(TREE))
    replay.step((0, 5))
    replay.step((5, 9))
    step = replay.lower((17, 18), (9, 12))
    first, second = step.runs
    assert first.state_in == second.state_in
    expected = replay.backbone.paged(step, copy.deepcopy(replay.storage))
    taken_over = replace(step, runs=(replace(first, state_out=first.state_in), second))
    assert torch.equal(replay.backbone.paged(taken_over, replay.storage), expected)


@FAMILIES
def test_a_thread_decodes_alike_alone_and_in_company(build: Callable) -> None:
    replay = replayed(build)
    together = replay.backbone.paged(replay.lower((22, 23), (26, 27), (9, 12)), replay.storage)
    alone = replay.backbone.paged(replay.lower((22, 23)), replay.storage)
    assert (together[0] - alone[0]).abs().max() < 1e-12


@FAMILIES
def test_bfloat16_store(build: Callable) -> None:
    replay = replayed(lambda: build(dtype=torch.bfloat16))
    with torch.no_grad():
        packed_TC = replay.backbone.packed(replay.plan)
    assert replay.storage.recurrent.dtype == torch.float32
    assert (replay.hidden_TC() - packed_TC).abs().mean() < 0.05
