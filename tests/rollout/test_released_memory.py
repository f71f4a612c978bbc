"""Memory that an engine gives the trainer and takes back: really freed, never read again, refused while it is used."""

from __future__ import annotations

import gc
import math
import weakref
from typing import Any

import pytest
import torch
from random_rollouts import tiny_engine
from tiny_models import tiny_llama, tiny_qwen35

from octopus.core.errors import CapacityExceeded, MemoryInUse, MemoryReleased, StaleWeights
from octopus.rollout.engine import Engine
from octopus.rollout.thread import Thread

FAMILIES = pytest.mark.parametrize("model", [tiny_llama, tiny_qwen35], ids=["llama", "qwen35"])
PROMPT = [1, 2, 3, 4, 5, 6, 7, 8, 9]
TENSORS = ("keys", "values", "conv", "recurrent")


def engine_of(model: Any) -> Engine:
    """With everything that may hold on to the memory: a host tier, and fingerprints of all that is read."""
    return tiny_engine(model(dtype=torch.float32), host_pages=64, host_states=16, seal_rate=1.0)


def rollout(engine: Engine) -> tuple[list[Thread], list[tuple[tuple[int, ...], tuple[float, ...]]]]:
    """A root, two branches, of which one goes to the host tier and comes back, and a root that has read both."""
    root = engine.thread(PROMPT)
    branches = root.fork(2)
    engine.generate(branches, max_tokens=4, stop_tokens=())
    engine.graph.preempt(branches[1].record)
    engine.generate([branches[1]], max_tokens=2, stop_tokens=())
    for branch in branches:
        root.read_thread(branch)
    root.append([5])
    made = engine.generate([root, *branches], max_tokens=3, stop_tokens=())
    return [root, *branches], [(one.tokens, one.log_probabilities) for one in made]


def played(engine: Engine) -> list[tuple[tuple[int, ...], tuple[float, ...]]]:
    threads, made = rollout(engine)
    for thread in threads:
        thread.drop()
    return made


@FAMILIES
def test_the_tensors_are_freed(model: Any) -> None:
    """Catches: a view of them that the host tier, the fingerprints or the last pass keeps."""
    engine = engine_of(model)
    played(engine)
    kept = [weakref.ref(getattr(engine.storage, name)) for name in TENSORS]
    memory = [weakref.ref(getattr(engine.storage, name).untyped_storage()) for name in TENSORS]
    pointers = {getattr(engine.storage, name).untyped_storage().data_ptr() for name in TENSORS} - {0}
    engine.release_memory()
    gc.collect()
    assert [one() for one in kept] == [None] * 4 == [one() for one in memory]
    held = [
        x for x in gc.get_objects() if type(x) is torch.Tensor and x.untyped_storage().data_ptr() in pointers
    ]
    assert held == []
    assert sum(getattr(engine.storage, name).nbytes for name in TENSORS) == 0 < engine.storage.bytes


@FAMILIES
def test_a_rollout_after_it_was_taken_back_is_that_of_a_fresh_engine(model: Any) -> None:
    """Catches: a read of what was there before, of what is there now by chance, or of the tensors of before."""
    fresh = played(engine_of(model))
    engine = engine_of(model)
    played(engine)
    for name in TENSORS:
        getattr(engine.storage, name).fill_(math.nan)
    engine.release_memory()
    engine.take_back_memory()
    for name in TENSORS:
        getattr(engine.storage, name).fill_(math.nan)
    engine.graph.check()
    assert played(engine) == fresh


@FAMILIES
def test_nothing_from_before_is_found(model: Any) -> None:
    """Catches: a prefix that is still found although its pages are gone, and a thread of older weights that goes on."""
    engine = engine_of(model)
    played(engine)
    waiting = engine.thread([3, 3])
    assert engine.graph.match(PROMPT).tokens == len(PROMPT)
    engine.release_memory()
    assert engine.graph.match(PROMPT).tokens == 0
    engine.advance_weights()
    engine.take_back_memory()
    assert engine.graph.match(PROMPT).tokens == 0
    with pytest.raises(StaleWeights):
        waiting.generate(max_tokens=1)


def test_it_is_refused_while_somebody_holds_pages() -> None:
    """Catches: memory taken from under a thread, and a refusal that does not say whose it is."""
    engine = tiny_engine(tiny_qwen35())
    ended, running = engine.thread(PROMPT), engine.thread([4, 5])
    ended.commit()
    engine.compute([running])
    message = rf"{engine.graph.stats().pages.used} pages and .* threads \[{running.id}\] have not ended, "
    with pytest.raises(MemoryInUse, match=message + rf"threads \[{ended.id}\] have; drop them all"):
        engine.release_memory()
    assert len(running.generate(max_tokens=2, stop_tokens=()).tokens) == 2
    running.drop()
    ended.drop()
    engine.release_memory()


def test_it_is_refused_while_a_step_is_open() -> None:
    """Catches: memory that goes while a pass writes into it."""
    engine = tiny_engine(tiny_llama())
    thread = engine.thread(PROMPT)
    with engine.graph.begin_step([thread.record]), pytest.raises(MemoryInUse, match="close the step first"):
        engine.release_memory()
    assert not engine.storage.released


def test_nothing_is_computed_meanwhile() -> None:
    """Catches: a pass over tensors without slots. What was recorded meanwhile is computed afterwards."""
    engine = tiny_engine(tiny_llama())
    engine.release_memory()
    engine.release_memory()
    thread = engine.thread(PROMPT)
    for act in (lambda: engine.compute([thread]), lambda: thread.generate(max_tokens=1), thread.commit):
        with pytest.raises(MemoryReleased, match=r"call `Engine.take_back_memory\(\)` first"):
            act()
    engine.take_back_memory()
    engine.take_back_memory()
    assert thread.generate(max_tokens=2, stop_tokens=()) == tiny_engine(tiny_llama()).thread(PROMPT).generate(
        max_tokens=2, stop_tokens=()
    )


def test_memory_that_does_not_come_back_can_be_asked_for_again(monkeypatch: pytest.MonkeyPatch) -> None:
    """Catches: half of the tensors allocated and held, and an engine that takes itself for whole."""
    engine = tiny_engine(tiny_qwen35())
    engine.release_memory()
    allocate, made = torch.empty, []

    def short(*arguments: Any, **settings: Any) -> torch.Tensor:
        if len(made) == 2:
            raise torch.OutOfMemoryError("pretended")
        made.append(weakref.ref(tensor := allocate(*arguments, **settings)))
        return tensor

    with monkeypatch.context() as patch:
        patch.setattr(torch, "empty", short)
        with pytest.raises(
            CapacityExceeded, match=r"no room for the store's \d+\.\d+ GiB: pretended; it stays released"
        ):
            engine.take_back_memory()
    assert [one() for one in made] == [None, None]
    with pytest.raises(MemoryReleased):
        engine.thread(PROMPT).generate(max_tokens=1)
    engine.take_back_memory()
    assert len(engine.thread(PROMPT).generate(max_tokens=2, stop_tokens=()).tokens) == 2


def test_garbage_is_given_back_before_it_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    """Catches: a refusal for memory that only a collection would have freed, such as tensors in a cycle."""
    engine = tiny_engine(tiny_llama())
    engine.release_memory()
    allocate, collected = torch.empty, [False]

    def short(*arguments: Any, **settings: Any) -> torch.Tensor:
        if not collected[0]:
            raise torch.OutOfMemoryError("pretended")
        return allocate(*arguments, **settings)

    monkeypatch.setattr(torch, "empty", short)
    monkeypatch.setattr(gc, "collect", lambda: collected.append(collected.pop() or True))
    engine.take_back_memory()
    assert not engine.storage.released
