"""The eight things that must hold exactly when one thread reads the KV of another where it lies.

Catches a shift with the wrong angle or on the wrong side, a mount that is not what re-reading would give where it
must be, one that touches recurrent or convolution state, and results that hang on where pages lie.

Letters: K keys, N queries, H query heads, G key/value heads, D head dimension, R half of the rotary dimensions.
"""

import random

import numpy as np
import pytest
import torch
from comparison import plain_row
from random_rollouts import tiny_engine
from tiny_models import tiny_llama, tiny_qwen35
from torch import Tensor

from octopus.attention.plan import Plan, Slice, lower
from octopus.attention.reference import attend_reference
from octopus.attention.rope import Rope
from octopus.attention.sliced import attend_sliced
from octopus.attention.step_plan import KeyRange, StepPlan, StepRun
from octopus.core.graph import Graph
from octopus.core.pool import unit_of
from octopus.core.storage.kv import KVStorage
from octopus.models.backbone import Backbone
from octopus.rollout.engine import Engine
from octopus.rollout.thread import Thread
from octopus.verify.executor import execute
from octopus.verify.oracle import Oracle

ROPE = Rope(inverse_frequencies_R=torch.tensor([1.0, 0.1], dtype=torch.float64))  # 4 of 8 dimensions
SCALE = 0.5
KEYS, ROWS = 6, 9
FAMILIES = pytest.mark.parametrize("make", [tiny_llama, tiny_qwen35])


def attention_inputs(seed: int) -> tuple[Tensor, Tensor, Tensor]:
    draw = torch.Generator().manual_seed(seed)
    q_HTD, k_GTD, v_GTD = (torch.randn(n, ROWS, 8, generator=draw, dtype=torch.float64) for n in (4, 2, 2))
    return q_HTD, k_GTD, v_GTD


def reading_plan(query_positions: list[int], *parts: tuple[int, int, int]) -> Plan:
    """Rows 0 to 5 are keys at positions 0 to 5; rows 6 to 8 see nothing but the `(start, stop, shift)` parts."""
    slices = [Slice(q0=KEYS, q1=ROWS, k0=a, k1=b, causal=False, shift=shift) for a, b, shift in parts]
    return Plan(
        tokens_T=np.zeros(ROWS, dtype=np.int64),
        positions_T=np.array([*range(KEYS), *query_positions]),
        subtree_ends_T=np.arange(ROWS) + 1,
        predecessors_T=np.full(ROWS, -1),
        slices=tuple(slices),
        starts={},
        wait_edges=(),
    )


def test_1_rotated_keys_equal_rotated_queries_equal_moved_queries() -> None:
    options = {"rope": ROPE, "scale": SCALE}
    shift = 17
    mount = reading_plan([30, 31, 32], (0, KEYS, shift))
    moved = reading_plan([30 - shift, 31 - shift, 32 - shift], (0, KEYS, 0))
    keys_rotated = attend_reference(*attention_inputs(1), plan=mount, **options)
    for plan, attend in ((mount, attend_sliced), (moved, attend_sliced), (moved, attend_reference)):
        found = attend(*attention_inputs(1), plan=plan, **options)
        torch.testing.assert_close(found, keys_rotated, rtol=0, atol=1e-12)


@FAMILIES
def test_2_a_mount_of_nothing_is_no_mount(make) -> None:
    def text(reads: bool) -> tuple[int, list[float]]:
        engine = tiny_engine(make())
        root = engine.thread([1, 2, 3])
        reader = root.fork()[0]
        mounted = sum(reader.read_thread(source) for source in (root, reader)) if reads else 0
        reader.append([4])
        return mounted, reader.generate(max_tokens=3).log_probabilities

    assert text(reads=True) == (0, text(reads=False)[1])


@pytest.mark.parametrize("placement", ["append", "original"])
def test_3_mounting_ones_own_continuation_is_plain_text(placement: str) -> None:
    """Only where all layers are attention: a mount never enters a recurrent state."""
    prompt, continuation, rest = [1, 2, 3], [4, 5, 6, 7], [8, 9]
    graph = Graph()
    root = graph.thread()
    graph.append(root, prompt)
    reader, source = graph.fork(root, 2)
    graph.append(source, continuation)
    assert graph.read_thread(reader, source, placement=placement) == 4
    graph.append(reader, rest)
    plan = lower(graph.segments)
    backbone = Backbone(tiny_llama())
    first = plan.starts[reader.cursor.segment]
    found = backbone.packed(plan)[first : first + len(rest)]
    expected = backbone.packed(plain_row(prompt + continuation + rest))[-len(rest) :]
    torch.testing.assert_close(found, expected, rtol=0, atol=1e-12)


@FAMILIES
def test_4_where_pages_lie_does_not_matter(make) -> None:
    def text(order: int | None) -> tuple[list[float], list[int]]:
        engine = tiny_engine(make())
        if order is not None:
            pool = engine.graph.retention.pages
            handles = pool.allocate(pool.capacity)
            random.Random(order).shuffle(handles)
            pool.release(handles)
        reader = reading_thread(engine, Oracle(), own=[1, 2, 3], read=list(range(10)), forced=[9])
        text = reader.generate(max_tokens=6)
        pages = [unit_of(page) for segment in engine.graph.segments for page in segment.pages]
        return text.log_probabilities, pages

    (in_order, pages), (shuffled, other_pages) = text(None), text(1)
    assert pages != other_pages
    assert in_order == shuffled


def test_5_reading_leaves_the_recurrent_state_alone() -> None:
    engine = tiny_engine(tiny_qwen35())
    root = engine.thread([1, 2, 3])
    reader, twin, source = root.fork(3)
    for thread, tokens in ((reader, [4, 5]), (twin, [4, 5]), (source, [6, 7, 8])):
        thread.append(tokens)
    engine.compute([reader, twin, source])
    before = [part.clone() for part in state_of(engine, reader)]
    assert reader.read_thread(source) == 3
    assert all(map(torch.equal, state_of(engine, reader), before))

    for thread in (reader, twin):
        thread.append([9])
        engine.compute([thread])
    with_mount, without = state_of(engine, reader), state_of(engine, twin)
    # The first layer is recurrent and has met no attention yet; the third has met what the mount changed.
    assert all(torch.equal(a[0], b[0]) for a, b in zip(with_mount, without, strict=True))
    assert not any(torch.equal(a[1], b[1]) for a, b in zip(with_mount, without, strict=True))


def state_of(engine: Engine, thread: Thread) -> tuple[Tensor, Tensor]:
    """Convolution columns and recurrent state of all layers at the thread's last token."""
    segment, length = thread.record.cursor
    if length == 0:
        segment, length = segment.parent
    slot = unit_of(segment.states[length])
    return engine.storage.conv[:, slot], engine.storage.recurrent[:, slot]


@FAMILIES
def test_6_without_a_prefix_position_only_turns_keys(make) -> None:
    backbone = Backbone(make())
    at_0, at_1000 = (stored_chain(backbone, first_position) for first_position in (0, 1000))
    turned = backbone.rotaries[0].rope.rotate(at_0.keys.transpose(1, 2), torch.full((8,), 1000)).transpose(1, 2)
    torch.testing.assert_close(at_1000.keys, turned, rtol=0, atol=1e-10)
    for name in ("values", "conv", "recurrent"):
        torch.testing.assert_close(getattr(at_1000, name), getattr(at_0, name), rtol=0, atol=1e-10)


def stored_chain(backbone: Backbone, first_position: int) -> KVStorage:
    """What 8 tokens from `first_position` on leave behind, with nothing before them."""
    storage = KVStorage(backbone.kv_shape, num_slots=8, num_states=1, dtype=backbone.dtype, device="cpu")
    own = KeyRange(source="chain", start=0, slots_K=np.arange(8), seen_at=first_position, shift=0)
    run = StepRun(start=0, stop=8, keys=(), own=own, state_out=0)
    rows = np.arange(8)
    step = StepPlan(tokens_T=rows, positions_T=first_position + rows, slots_T=rows, runs=(run,))
    backbone.paged(step, storage)
    return storage


@pytest.mark.parametrize("attend", [attend_reference, attend_sliced])
def test_7_two_mounts_share_one_softmax(attend) -> None:
    q_HTD, k_GTD, v_GTD = attention_inputs(7)
    plan = reading_plan([40, 41, 42], (0, 2, 11), (3, KEYS, -2))
    seen_at = {0: 11, 1: 12, 3: 1, 4: 2, 5: 3}
    keys_GKD = torch.stack([turned(k_GTD[:, i], position) for i, position in seen_at.items()], dim=1)
    queries_HND = torch.stack([turned(q_HTD[:, KEYS + i], 40 + i) for i in range(3)], dim=1)
    weights_HNK = (queries_HND @ keys_GKD.repeat_interleave(2, dim=0).mT * SCALE).softmax(dim=-1)
    expected_HND = weights_HNK @ v_GTD[:, list(seen_at)].repeat_interleave(2, dim=0)
    out_HTD, _ = attend(q_HTD, k_GTD, v_GTD, plan=plan, rope=ROPE, scale=SCALE)
    torch.testing.assert_close(out_HTD[:, KEYS:], expected_HND, rtol=0, atol=1e-12)


def turned(x_XD: Tensor, position: int) -> Tensor:
    """Rotation as multiplication by complex units, for `ROPE`."""
    angles_R = position * ROPE.inverse_frequencies_R
    pairs_XR = torch.complex(x_XD[..., :2], x_XD[..., 2:4]) * torch.polar(torch.ones_like(angles_R), angles_R)
    return torch.cat([pairs_XR.real, pairs_XR.imag, x_XD[..., 4:]], dim=-1)


@pytest.mark.parametrize("beyond_page", [-1, 0, 1])
def test_8_empty_prefix_partial_rotary_wide_heads_at_a_page_boundary(beyond_page: int) -> None:
    shape = {"heads": 16, "kv_heads": 4, "head_dim": 256, "layers": 2}
    engine, oracle = tiny_engine(tiny_qwen35(**shape), page_size=8), Oracle()
    read = list(range(8 + beyond_page))
    text = reading_thread(engine, oracle, own=[1, 2, 3], read=read, forced=[9]).generate(max_tokens=4)
    oracle.append(oracle.threads[1], text.tokens)
    with torch.no_grad():
        logits_IV = execute(tiny_qwen35(**shape), oracle.tokens)[1]
    expected = [
        float(logits_IV[token.predecessor].log_softmax(dim=-1)[token.value]) for token in oracle.tokens[-4:]
    ]
    assert text.log_probabilities == pytest.approx(expected, abs=1e-10, rel=0)


def reading_thread(
    engine: Engine, oracle: Oracle, *, own: list[int], read: list[int], forced: list[int]
) -> Thread:
    """A thread without prefix that wrote `own`, mounted a sibling's `read`, and got `forced`; on both sides."""
    reader, source = engine.thread().fork(2)
    theirs, their_source = oracle.fork(oracle.thread(), 2)
    for thread, twin, tokens in ((reader, theirs, own), (source, their_source, read)):
        thread.append(tokens)
        oracle.append(twin, tokens)
    engine.compute([reader, source])
    assert reader.read_thread(source) == len(oracle.read(theirs, their_source)) == len(read)
    reader.append(forced)
    oracle.append(theirs, forced)
    return reader
