"""Real passes under memory pressure say what they say without it."""

from __future__ import annotations

import gc
import weakref
from collections.abc import Callable
from typing import Any

import pytest
import torch
from random_rollouts import tiny_engine
from tiny_models import tiny_llama, tiny_qwen35

from octopus.core.errors import CapacityExceeded, Contamination
from octopus.core.pool import unit_of
from octopus.models.paged import PagedContext
from octopus.rollout.engine import Engine
from octopus.rollout.generation import Generation
from octopus.rollout.turns import Turns

FAMILIES = pytest.mark.parametrize("model", [tiny_llama, tiny_qwen35], ids=["llama", "qwen35"])
Model = Callable[..., Any]


def outcome(engine: Engine) -> list[tuple[tuple[int, ...], tuple[float, ...]]]:
    """Six threads of one prompt write; the root reads three of them and goes on."""
    root = engine.thread(list(range(1, 14)))
    branches = root.fork(6)
    for index, branch in enumerate(branches):
        branch.append([20 + index] * (3 + 2 * index))
    first = engine.generate(branches, max_tokens=9, stop_tokens=(), temperature=1.0)
    root.wait_threads(branches)
    for index, branch in reversed(list(enumerate(branches))):
        branch.commit()
        if index > 2:
            branch.drop()
    for branch in branches[:3]:
        root.read_thread(branch)
    root.append([9])
    second = engine.generate([root], max_tokens=6, stop_tokens=())
    engine.graph.audit()
    return [said(generation) for generation in (*first, *second)]


def said(generation: Generation) -> tuple[tuple[int, ...], tuple[float, ...]]:
    return generation.tokens, tuple(round(p, 9) for p in generation.log_probabilities)


@FAMILIES
@pytest.mark.parametrize("host", [False, True], ids=["recompute", "swap"])
def test_a_pool_that_is_too_small_says_the_same(model: Model, host: bool) -> None:
    """Catches: a preempted thread that goes on from memory that is not its own; draws that depend on the batch."""
    whole = outcome(tiny_engine(model()))
    settings = {"host_pages": 40, "host_states": 20} if host else {}
    engine = tiny_engine(model(), pages=24, state_slots=20, seal_rate=1.0, **settings)
    assert outcome(engine) == whole
    counters = engine.graph.stats().counters
    assert counters.refused > 0 and counters.seals_checked > 0 and counters.seals_broken == 0
    assert (counters.preempted_swapped > 0, counters.restores_done > 0) == (host, host)
    assert host or counters.preempted_recomputed > 0


class SmallDevice:
    """Stands for a device that has room for passes of so many tokens; keeps a weak eye on what a failed pass held."""

    def __init__(self, engine: Engine, most_tokens: int) -> None:
        self.advance = engine.backbone.advance
        self.most_tokens = most_tokens
        self.held: list[weakref.ref[torch.Tensor]] = []
        self.alive_at_retry = 0
        self.failures = 0

    def __call__(self, moves: Any, *arguments: Any, **settings: Any) -> torch.Tensor:
        self.alive_at_retry += sum(reference() is not None for reference in self.held)
        self.held = []
        if sum(stretch.stop - stretch.start for stretch, _ in moves) > self.most_tokens:
            self.failures += 1
            activations = torch.zeros(10)
            self.held.append(weakref.ref(activations))
            raise torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 2.00 GiB.\nMore words.")
        return self.advance(moves, *arguments, **settings)


@FAMILIES
def test_a_device_out_of_memory_is_tried_again_in_smaller_passes(
    model: Model, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Catches: a retry inside the handler, whose traceback keeps the pass's tensors; pages lost with the pass."""
    whole = outcome(tiny_engine(model()))
    engine = tiny_engine(model())
    device = SmallDevice(engine, most_tokens=3)
    monkeypatch.setattr(engine.backbone, "advance", device)
    gc.disable()
    try:
        assert outcome(engine) == whole
    finally:
        gc.enable()
    counters = engine.graph.stats().counters
    assert counters.oom_retries == device.failures > 0 and counters.oom_refused == 0
    assert device.alive_at_retry == 0


@FAMILIES
def test_a_pass_that_fails_half_way_leaves_nothing_behind(model: Model, monkeypatch: pytest.MonkeyPatch) -> None:
    """Catches: a state that an abandoned pass has advanced in its first layers and that the next one starts from."""
    whole = outcome(tiny_engine(model()))
    engine = tiny_engine(model())
    attend, last = PagedContext.attend, len(engine.backbone.model.model.layers) - 1
    passes, failures = [], []

    def late(self: PagedContext, layer: int, q_HTD: torch.Tensor, *arguments: Any, **settings: Any) -> torch.Tensor:
        passes.extend([1] * (layer == last))
        if layer == last and len(passes) > 5 and q_HTD.shape[1] > 3:  # When states are advanced in place.
            failures.append(1)
            raise torch.OutOfMemoryError("CUDA out of memory.")
        return attend(self, layer, q_HTD, *arguments, **settings)

    monkeypatch.setattr(PagedContext, "attend", late)
    assert outcome(engine) == whole
    assert engine.graph.stats().counters.oom_retries == len(failures) > 0


def test_logits_without_room_are_made_in_pieces(monkeypatch: pytest.MonkeyPatch) -> None:
    """Catches: an error of the logits that ends the rollout; rows made twice, or chosen with another's draw."""
    whole = outcome(tiny_engine(tiny_llama()))
    engine = tiny_engine(tiny_llama())
    logits, sizes = engine.backbone.logits, []

    def small(hidden_NC: torch.Tensor) -> torch.Tensor:
        sizes.append(len(hidden_NC))
        if len(hidden_NC) > 2:
            raise torch.OutOfMemoryError("CUDA out of memory.")
        return logits(hidden_NC)

    monkeypatch.setattr(engine.backbone, "logits", small)
    assert outcome(engine) == whole
    assert sizes[:2] == [6, 3] and max(sizes[2:]) == 1
    assert engine.graph.stats().counters.oom_retries == 2
    monkeypatch.setattr(engine.backbone, "logits", lambda hidden_NC: small(hidden_NC.expand(3, -1)))
    with pytest.raises(CapacityExceeded, match="does not suffice for the logits of 1 rows"):
        engine.thread([1]).generate(max_tokens=1)


def test_a_device_that_never_has_room_is_given_up(monkeypatch: pytest.MonkeyPatch) -> None:
    """Catches: a loop without end; an error that says nothing; anything that stays reserved."""
    engine = tiny_engine(tiny_llama())
    device = SmallDevice(engine, most_tokens=0)
    thread = engine.thread([1, 2, 3])
    with monkeypatch.context() as patch:
        patch.setattr(engine.backbone, "advance", device)
        with pytest.raises(CapacityExceeded, match=r"pass of 1 tokens: CUDA out of memory\. Tried .* GiB\.; build"):
            thread.generate(max_tokens=1)
    counters = engine.graph.stats().counters
    assert counters.oom_refused == 1 and device.failures == counters.oom_retries <= 20
    assert engine.graph.stats().pages.used == 0
    engine.graph.audit()
    assert len(thread.generate(max_tokens=2, stop_tokens=()).tokens) == 2


def test_a_flipped_byte_is_found_before_it_reaches_a_log_probability() -> None:
    """Catches: fingerprints that are not those of the engine's own tensors."""
    engine = tiny_engine(tiny_llama(), seal_rate=1.0)
    thread = engine.thread(list(range(1, 20)))
    thread.generate(max_tokens=2, stop_tokens=())
    page = unit_of(thread.record.cursor.segment.pages[1])
    size = engine.graph.retention.pages.page_size
    engine.storage.values[1, page * size, 0, 3] += 1e-12
    with pytest.raises(Contamination, match="computed memory has changed"):
        thread.generate(max_tokens=1)


@FAMILIES
@pytest.mark.parametrize("drop", [False, True])
def test_a_thread_that_ends_in_the_middle_of_a_pass_disturbs_nobody(
    model: Model, drop: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Catches: a batch that is lost with one of its threads; a token that is added to an ended one."""

    def threads(engine: Engine) -> list[Any]:
        return engine.thread(list(range(1, 8))).fork(3)

    engine = tiny_engine(model())
    whole = [said(g) for g in engine.generate(threads(engine), max_tokens=6, stop_tokens=(), temperature=1.0)]
    engine = tiny_engine(model())
    batch, passes, advance = threads(engine), [], engine.backbone.advance

    def cancelling(*arguments: Any, **settings: Any) -> torch.Tensor:
        passes.append(1)
        if len(passes) == 3:
            (batch[1].drop if drop else batch[1].cancel)()
        return advance(*arguments, **settings)

    monkeypatch.setattr(engine.backbone, "advance", cancelling)
    done = [said(g) for g in engine.generate(batch, max_tokens=6, stop_tokens=(), temperature=1.0)]
    assert (done[0], done[2]) == (whole[0], whole[2])
    assert 0 < len(done[1][0]) < 6 and done[1][0] == whole[1][0][: len(done[1][0])]
    engine.graph.audit()


def test_the_least_important_is_taken_off_and_comes_back() -> None:
    """Catches: somebody who is taken off for ever, or the only one taken off."""
    turns = Turns([3, 1, 2], key=lambda member: member)
    with turns.parking():
        raise CapacityExceeded("full")
    assert turns.active == [1, 2]
    turns.keep(lambda member: member != 1)
    assert turns.active == [2, 3]
    with turns.parking():
        pass
    turns.keep(lambda member: True)
    assert turns.active == [2, 3]
    turns.keep(lambda member: member == 3)
    with pytest.raises(CapacityExceeded, match="full"), turns.parking():
        raise CapacityExceeded("full")
