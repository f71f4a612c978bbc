"""Small forms of public bugs in positions and caches; those of rotary types are in `test_rotary.py`.

Each test names what others have got wrong. Rows with positions that start anew, taken for one sequence or for packed
ones, are in `test_packed_models.py`; angles in few bits are in `tests/attention/test_rope.py`.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
import torch
from hand_made import Branch, Replay, chain_of, plan_of
from tiny_models import EVERY_FAMILY, tiny_gemma3

from octopus.attention.plan import lower
from octopus.core.graph import Graph
from octopus.models.backbone import Backbone


def test_siblings_stand_side_by_side() -> None:
    """Catches: a child's position taken from its place in the row instead of its depth (tree drafts, flat ranges)."""
    graph = Graph()
    root = graph.thread()
    graph.append(root, [1, 2, 3])
    for child in graph.fork(root, 2):
        graph.append(child, [4, 5])
    assert lower(graph.segments).positions_T.tolist() == [0, 1, 2, 3, 4, 3, 4]


@pytest.mark.parametrize("build", EVERY_FAMILY)
@torch.no_grad()
def test_one_token_at_a_time_equals_all_at_once(build: Callable) -> None:
    """Catches: stored keys rotated again when read, every decoded token at position 0, positions that are ahead by one.

    Three tokens, then a long way: with a window of 5 the cache goes on past it.
    """
    backbone, plan = Backbone(build()), chain_of(np.arange(14) % 11)
    replay = Replay(backbone, plan)
    at = [replay.step((row, row + 1)).positions_T.tolist() for row in range(plan.length)]
    assert at == [[row] for row in range(plan.length)]
    assert (replay.hidden_TC() - backbone.packed(plan)).abs().max() < 1e-10


@torch.no_grad()
def test_a_chunk_that_is_longer_than_the_window() -> None:
    """Catches: a prefill that keeps or sees only the last window of its own rows, or one token too many before it."""
    backbone, plan = Backbone(tiny_gemma3(window=3)), chain_of(np.arange(20) % 11)
    replay = Replay(backbone, plan)
    for span in ((0, 1), (1, 9), (9, 12), (12, 20)):
        replay.step(span)
    assert (replay.hidden_TC() - backbone.packed(plan)).abs().max() < 1e-10


@pytest.mark.parametrize("build", EVERY_FAMILY)
@torch.no_grad()
def test_what_is_mounted_keeps_its_shift_through_all_chunks(build: Callable) -> None:
    """Catches: a shift that is applied in the first chunk after a mount only, or once more in each."""
    reader = Branch(length=9, parent=0, fork=3, mounts=((1, 0, 5, -3),))
    backbone, plan = Backbone(build()), plan_of((Branch(length=6), Branch(length=5, parent=0, fork=6), reader))
    replay = Replay(backbone, plan)
    for span in ((0, 3), (3, 6), (6, 11), (11, 12), (12, 15), (15, 16), (16, 20)):
        replay.step(span)
    assert (replay.hidden_TC() - backbone.packed(plan)).abs().max() < 1e-10
