"""The engine's promises besides exactness: no memory for primitives, poison, refusals, noise."""

from __future__ import annotations

import math
from typing import Any

import pytest
import torch
from chat_tokenizers import tokenizer
from random_rollouts import tiny_engine
from tiny_models import tiny_llama, tiny_qwen35
from torch.utils._python_dispatch import TorchDispatchMode

from octopus.attention.step_plan import StepPlan
from octopus.core.errors import (
    CapacityExceeded,
    ForkRefused,
    GenerateAfterMount,
    NotRunning,
    OctopusError,
    RewindRefused,
    StaleHandle,
    StaleWeights,
    UnreadableSource,
    WaitCycle,
)
from octopus.core.pool import NO_PAGE, unit_of
from octopus.core.storage.kv import KVStorage
from octopus.rollout.engine import Engine
from octopus.rollout.sampling import Draw
from octopus.rollout.thread import Thread

FAMILIES = pytest.mark.parametrize("model", [tiny_llama, tiny_qwen35], ids=["llama", "qwen35"])
GREEDY: dict[str, Any] = {"max_tokens": 5, "stop_tokens": ()}


class NoTensorWork(TorchDispatchMode):
    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        raise AssertionError(f"{func} was called")


def episode(engine: Engine) -> tuple[Thread, list[Thread]]:
    """A root, three branches that have generated, and a fourth that is behind."""
    root = engine.thread([1, 2, 3, 4, 5, 6, 7])
    branches = root.fork(4)
    for index, branch in enumerate(branches):
        branch.append([8 + index])
    engine.generate(branches[:3], **GREEDY)
    return root, branches


@FAMILIES
def test_primitives_take_no_page_no_slot_and_no_tensor(model: Any) -> None:
    """Catches: a fork that copies a state, a read that gathers keys, a wait or commit that touches the device."""
    engine = tiny_engine(model())
    root, branches = episode(engine)
    engine.compute([root, *branches])
    pools = [pool for pool in (engine.graph.retention.pages, engine.graph.retention.states) if pool is not None]
    before = [pool.used for pool in pools]
    with NoTensorWork():
        children = branches[0].fork(50)
        for branch in branches[1:]:
            assert branches[0].read_thread(branch) > 0
        for branch in branches[1:]:
            engine.graph.commit(branch.record)
        root.wait_threads(branches[1:])
        children[0].cancel()
    assert [pool.used for pool in pools] == before


@FAMILIES
@pytest.mark.parametrize("poison", ["keys", "values", "both"])
def test_slots_that_nobody_sees_may_hold_anything(model: Any, poison: str) -> None:
    """Catches: a gather over whole pages, and a mask that multiplies.

    Page tails, free pages and unused states are NaN; every output is bitwise that of a clean store.
    """

    def outcome(value: float) -> list[tuple[tuple[int, ...], tuple[float, ...]]]:
        engine = tiny_engine(model(dtype=torch.float32))
        fill(engine, poison, value)
        root, branches = episode(engine)
        fill_unseen(engine, poison, value)
        for branch in branches[:3]:
            root.read_thread(branch)
        root.append([9])
        generations = engine.generate([root, branches[3]], **GREEDY)
        return [(g.tokens, g.log_probabilities) for g in generations]

    assert outcome(math.nan) == outcome(0.0) == outcome(1e4)


def fill(engine: Engine, poison: str, value: float) -> None:
    storage = engine.storage
    for name, tensor in (("keys", storage.keys), ("values", storage.values)):
        tensor.fill_(value if poison in (name, "both") else 0.0)
    storage.conv.fill_(value)
    storage.recurrent.fill_(value)


def fill_unseen(engine: Engine, poison: str, value: float) -> None:
    """Fills every slot that holds no computed token, after some have been used and freed."""
    storage, size = engine.storage, engine.graph.retention.pages.page_size
    seen = {
        unit_of(handle) * size + offset
        for segment in engine.graph.segments
        for index, handle in enumerate(segment.pages)
        if handle != NO_PAGE
        for offset in range(min(size, segment.computed - index * size))
    }
    unseen = [slot for slot in range(storage.keys.shape[1]) if slot not in seen]
    for name, tensor in (("keys", storage.keys), ("values", storage.values)):
        if poison in (name, "both"):
            tensor[:, unseen] = value


@FAMILIES
@pytest.mark.parametrize("value", [0.0, 1e4, -1e4, math.nan])
def test_a_siblings_slots_do_not_reach_a_thread(model: Any, value: float) -> None:
    """Catches: a thread that reads a sibling it has not mounted; and, as the control, one that ignores what it has."""

    def outcome(*, poisoned: bool, mounted: bool) -> tuple[float, ...]:
        engine = tiny_engine(model(dtype=torch.float32))
        _, branches = episode(engine)
        engine.compute(branches)
        if mounted:
            branches[3].read_thread(branches[0])
            branches[3].append([9])
        if poisoned:
            page = unit_of(branches[0].record.cursor.segment.pages[0])
            size = engine.graph.retention.pages.page_size
            engine.storage.values[:, page * size : page * size + 2] = value
        return branches[3].generate(max_tokens=3).log_probabilities

    assert outcome(poisoned=True, mounted=False) == outcome(poisoned=False, mounted=False)
    changed, kept = outcome(poisoned=True, mounted=True), outcome(poisoned=False, mounted=True)
    assert changed != kept


@FAMILIES
def test_a_batch_says_what_each_thread_says_alone(model: Any) -> None:
    """Catches: rows that leak into each other. Same noise, fp64, all tokens and log-probabilities."""

    def outcome(together: bool) -> list[tuple[tuple[int, ...], tuple[float, ...]]]:
        engine = tiny_engine(model())
        _, branches = episode(engine)
        groups = [branches] if together else [[branch] for branch in branches]
        done = [g for group in groups for g in engine.generate(group, max_tokens=6, temperature=1.0, stop_tokens=())]
        return [(g.tokens, g.log_probabilities) for g in done]

    for (tokens, log_probabilities), (tokens_alone, alone) in zip(outcome(True), outcome(False), strict=True):
        assert tokens == tokens_alone
        assert log_probabilities == pytest.approx(alone, abs=1e-12)


def test_noise_is_of_the_thread_and_never_repeats() -> None:
    """Catches: noise by position, which a rewind repeats; noise by batch row; siblings that draw the same."""
    engine = tiny_engine(tiny_llama(), seed=3)
    one, two = engine.thread([1, 2, 3]).fork(2)

    def sample(thread: Thread) -> tuple[int, ...]:
        return thread.generate(max_tokens=12, temperature=3.0).tokens

    first = sample(one)
    one.rewind(0)
    assert sample(one) != first != sample(two)
    again = tiny_engine(tiny_llama(), seed=3)
    assert sample(again.thread([1, 2, 3]).fork(2)[0]) == first
    other = tiny_engine(tiny_llama(), seed=4)
    assert sample(other.thread([1, 2, 3]).fork(2)[0]) != first


def test_stop_tokens_end_a_turn() -> None:
    """Catches: a stop token that ends the whole batch, or is left out of the record."""
    engine = tiny_engine(tiny_llama())
    threads = [engine.thread([1, 2, 3]), engine.thread([4, 5])]
    free = engine.generate(threads, max_tokens=6, stop_tokens=())
    engine = tiny_engine(tiny_llama())
    threads = [engine.thread([1, 2, 3]), engine.thread([4, 5])]
    stop = free[0].tokens[2]
    first, second = engine.generate(threads, max_tokens=6, stop_tokens=[stop])
    assert first.tokens == free[0].tokens[: free[0].tokens.index(stop) + 1] and first.stopped
    assert second.tokens == free[1].tokens[: len(second.tokens)]
    assert threads[0].tokens == [1, 2, 3, *first.tokens]


def test_generating_right_after_a_mount_is_refused() -> None:
    """Catches: a first token that is sampled blind to what was just read; also from a child forked there."""
    engine = tiny_engine(tiny_llama())
    root, branches = episode(engine)
    root.read_thread(branches[0])
    (child,) = root.fork()
    for thread in (root, child):
        with pytest.raises(GenerateAfterMount, match="has just read another thread; its last token has not seen"):
            thread.generate(max_tokens=1)
    root.append([9])
    assert len(root.generate(max_tokens=1).tokens) == 1


def test_a_pool_too_small_for_the_prompt_is_refused_before_anything_happens() -> None:
    """Catches: computing the first chunks and failing in the middle; a message without figures."""
    engine = tiny_engine(tiny_llama(), pages=4, batch_tokens=4)
    thread = engine.thread([1] * 17)
    with pytest.raises(CapacityExceeded, match="need 5 pages of 4 tokens, 4 of 4 are free; dropping threads"):
        thread.generate(max_tokens=1)
    assert engine.graph.retention.pages.used == 0 and thread.tokens == [1] * 17
    thread.rewind(12)
    assert len(thread.generate(max_tokens=4).tokens) == 4
    with pytest.raises(CapacityExceeded):
        thread.generate(max_tokens=8)
    assert len(thread.tokens) == 17 and engine.graph.retention.pages.used == 4
    engine.graph.check()


def test_a_state_pool_too_small_is_refused() -> None:
    """Catches: admission that checks the pages only."""
    engine = tiny_engine(tiny_qwen35(), state_slots=1)
    root = engine.thread([1, 2, 3])
    branches = root.fork(2)
    for branch in branches:
        branch.append([4])
    with pytest.raises(CapacityExceeded, match=r"^need 2 state slots, 1 of 1 are free; .* with more state_slots$"):
        engine.generate(branches, max_tokens=1)
    assert engine.graph.retention.pages.used == 0


def test_a_line_begins_with_the_tokenizers_opening_token_once() -> None:
    """Row 61 of public bugs. Catches: a prompt that is one token short; a beginning of text in the middle."""
    opening = tokenizer(None)
    assert opening("snow").input_ids[0] == opening.bos_token_id == 0
    engine = Engine(tiny_llama(vocab_size=1024), opening, pages=8)
    thread = engine.thread("white")
    thread.append(" snow")
    (child,) = thread.fork()
    child.append(" falls")
    words = [opening(text, add_special_tokens=False).input_ids for text in ("white", " snow", " falls")]
    assert thread.tokens == [0, *words[0], *words[1]]
    assert child.tokens == words[2]
    assert engine.thread([5, 6]).tokens == [5, 6] and engine.thread().tokens == []


def test_bad_calls_say_what_to_do() -> None:
    """Catches: an index error or a silent nonsense where a user has made a mistake."""
    engine = tiny_engine(tiny_llama())
    root, branches = episode(engine)
    with pytest.raises(OctopusError, match="has no token yet: the first token must be given, not sampled"):
        engine.thread().generate(max_tokens=1)
    with pytest.raises(ValueError, match="max_tokens is at least 1 and temperature at least 0, got 0"):
        root.generate(max_tokens=0)
    with pytest.raises(ValueError, match="generate takes each thread once"):
        engine.generate([root, root], max_tokens=1)
    branches[0].cancel()
    with pytest.raises(UnreadableSource, match="was cancelled; nothing of it can be read"):
        root.read_thread(branches[0])
    with pytest.raises(NotRunning, match="it is cancelled, and must be running"):
        branches[0].generate(max_tokens=1)
    with pytest.raises(RewindRefused, match="tokens of its own since its fork point"):
        branches[1].rewind(100)
    branches[1].wait_threads([branches[2]])
    with pytest.raises(WaitCycle, match="nobody of them would ever go on"):
        branches[2].wait_threads([branches[1]])
    with pytest.raises(StaleHandle, match="thread 0 belongs to another graph"):
        tiny_engine(tiny_llama()).generate([root], max_tokens=1)
    branches[3].drop()
    with pytest.raises(StaleHandle, match="was dropped; a dropped handle names nothing"):
        branches[3].append([1])


def test_a_rewind_that_may_not_recompute_needs_a_kept_state() -> None:
    """Catches: going on from the state of another place."""
    engine = tiny_engine(tiny_qwen35())
    thread = engine.thread([1, 2, 3])
    engine.compute([thread])
    snapshot = thread.commit(keep_running=True)
    thread.append([4, 5, 6])
    engine.compute([thread])
    with pytest.raises(RewindRefused, match=r"no recurrent state is kept at .*; allow recompute"):
        thread.rewind(4, recompute=False)
    thread.rewind(snapshot, recompute=False)
    assert thread.tokens == [1, 2, 3]


def test_new_weights_end_all_threads() -> None:
    """Catches: a hidden state or a page of the old weights that is sampled from."""
    engine = tiny_engine(tiny_llama())
    root, _ = episode(engine)
    engine.advance_weights()
    with pytest.raises(StaleWeights, match="begin a new thread"):
        root.generate(max_tokens=1)
    assert len(engine.thread([1, 2]).generate(max_tokens=2).tokens) == 2


@FAMILIES
def test_a_failed_pass_loses_nothing(model: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """Catches: pages or state slots that stay reserved after an exception, and a torn state that is used again."""
    engine = tiny_engine(model())
    _, branches = episode(engine)
    clean = [g.tokens for g in engine.generate(branches, **GREEDY)]
    engine = tiny_engine(model())
    _, branches = episode(engine)

    def broken(_: Any, step: StepPlan, storage: KVStorage) -> Any:
        for run in step.runs if storage.recurrent.numel() else ():
            storage.recurrent[:, run.state_out] = math.nan  # Half written.
        raise RuntimeError("device lost")

    with monkeypatch.context() as patch:
        patch.setattr(type(engine.backbone), "paged", broken)
        with pytest.raises(RuntimeError, match="device lost"):
            engine.generate(branches, **GREEDY)
    engine.graph.check()
    assert [g.tokens for g in engine.generate(branches, **GREEDY)] == clean
    engine.graph.check()


@FAMILIES
def test_threads_that_are_computed_along_can_be_committed(model: Any) -> None:
    """Catches: a pass of its own for every commit, or a sample that a companion changes."""
    engine = tiny_engine(model())
    _, branches = episode(engine)
    draws = [Draw(0, (index,), 0) for index in range(3)]
    records = [branch.record for branch in branches]
    alone = engine.sample(records[:3], draws, temperature=1.0)
    assert engine.sample(records[:3], draws, temperature=1.0, also=records[3:]) == alone
    engine.graph.commit(records[3])
    assert engine.sample([], [], temperature=1.0) == []


@FAMILIES
def test_trim_gives_back_what_nobody_can_reach_and_no_more(model: Any) -> None:
    """Catches: pages of dropped threads that stay, and pages that a reader still sees."""
    engine = tiny_engine(model())
    root, branches = episode(engine)
    engine.compute([root, *branches])
    branches[0].commit()
    root.read_thread(branches[0])
    for branch in branches:
        branch.drop()
    held = {segment for segment in engine.graph.segments if segment.held}
    engine.trim()
    assert set(engine.graph.segments) == held and len(held) == 3
    root.append([9])
    assert len(root.generate(max_tokens=2).tokens) == 2
    root.drop()
    engine.trim()
    pools = engine.graph.retention
    assert not engine.graph.segments and pools.pages.used == 0 and (pools.states is None or pools.states.used == 0)
    engine.graph.check()


@FAMILIES
@pytest.mark.parametrize("computed", [False, True], ids=["fresh", "computed"])
@pytest.mark.parametrize("child_first", [False, True])
def test_a_child_that_is_behind_samples_from_its_own_place(model: Any, computed: bool, child_first: bool) -> None:
    """Catches: a hidden state that the schedule takes for granted because the parent's pass runs over the place."""

    def outcome(*, together: bool) -> list[tuple[int, ...]]:
        engine = tiny_engine(model())
        root = engine.thread([1, 2, 3, 4, 5, 6, 7])
        (child,) = root.fork()
        root.append([8, 9, 10])
        if computed:
            engine.compute([root])
        threads = [child, root] if child_first else [root, child]
        groups = [threads] if together else [[thread] for thread in threads]
        return [g.tokens for group in groups for g in engine.generate(group, max_tokens=2, stop_tokens=())]

    assert outcome(together=True) == outcome(together=False)


def test_the_parents_row_stays_while_it_stands_at_its_tip() -> None:
    """Catches: a hidden state at a tip that a child's pass over the same segment forgets, to be computed once more."""
    engine = tiny_engine(tiny_llama())
    root = engine.thread([1, 2, 3, 4])
    engine.compute([root])
    (child,) = root.fork()
    root.append([5])
    engine.compute([root])
    root.generate(max_tokens=1)
    segment, length = root.record.cursor
    engine.compute([root])
    child.generate(max_tokens=1)
    assert engine._frontier.get(root.record.cursor) is not None, (segment, length)


@pytest.mark.parametrize("batch_tokens", [1024, 4])
@pytest.mark.parametrize("far_first", [False, True])
def test_two_places_of_one_segment_are_computed_again_in_one_pass(batch_tokens: int, far_first: bool) -> None:
    """Catches: a stretch that is planned twice, since the farther place passes the nearer one's chunks."""

    def outcome(*, together: bool) -> dict[int, tuple[int, ...]]:
        engine = tiny_engine(tiny_qwen35(), batch_tokens=batch_tokens)
        root = engine.thread(list(range(1, 13)))
        engine.compute([root])
        root.rewind(9)
        (child,) = root.fork()
        root.rewind(6)
        threads = [child, root] if far_first else [root, child]
        groups = [threads] if together else [[thread] for thread in threads]
        done = [g.tokens for group in groups for g in engine.generate(group, max_tokens=2, stop_tokens=())]
        engine.graph.check()
        return {thread.id: tokens for thread, tokens in zip(threads, done, strict=True)}

    assert outcome(together=True) == outcome(together=False)


def test_a_line_goes_on_from_a_snapshot_of_its_own() -> None:
    """Catches: a snapshot that is taken for the thread's present place; another thread's that is accepted."""
    engine = tiny_engine(tiny_llama())
    thread = engine.thread([1, 2, 3])
    snapshot = thread.commit(keep_running=True)
    thread.append([4])
    (child,) = thread.fork(snapshot=snapshot)
    child.append([5])
    assert (child.id, child.tokens, child.next_position) == (1, [5], 4)
    with pytest.raises(ForkRefused, match="the snapshot is one of thread 0; fork it from there, not thread 1"):
        child.fork(snapshot=snapshot)


def test_a_single_thread_stops_where_it_is_told() -> None:
    """Catches: stop tokens that only the engine's own call takes."""
    free = tiny_engine(tiny_llama()).thread([1, 2, 3]).generate(max_tokens=6, stop_tokens=())
    stopped = tiny_engine(tiny_llama()).thread([1, 2, 3]).generate(max_tokens=6, stop_tokens=[free.tokens[1]])
    assert stopped.stopped and stopped.tokens == free.tokens[: free.tokens.index(free.tokens[1]) + 1]
