"""What a decode step launches: as much for many threads as for few, and nothing that decoding does not need."""

from __future__ import annotations

from collections import Counter
from typing import Any

import pytest
import torch
from random_rollouts import tiny_engine
from tiny_models import tiny_qwen35
from torch.utils._python_dispatch import TorchDispatchMode

from octopus.models.paged import PagedContext
from octopus.rollout.sampling import Draw


class Launches(TorchDispatchMode):
    """Counts the calls of each operator."""

    def __init__(self) -> None:
        super().__init__()
        self.counts: Counter[str] = Counter()

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        self.counts[func.overloadpacket.__name__] += 1
        return func(*args, **(kwargs or {}))


def launches_of(threads: int) -> Counter[str]:
    """Of one decode step; attention, which is one launch by our kernels, is left out."""
    engine = tiny_engine(tiny_qwen35())
    children = engine.thread([1, 2, 3]).fork(threads)
    engine.generate(children, max_tokens=2, stop_tokens=())
    draws = [Draw(0, child.record.path, 2) for child in children]
    with Launches() as launches:
        engine.sample([child.record for child in children], draws, temperature=1.0)
    return launches.counts


def test_a_decode_step_launches_no_more_for_more_threads(monkeypatch: pytest.MonkeyPatch) -> None:
    """Catches: a launch for each thread in a layer; masks for states and columns that all threads have."""
    monkeypatch.setattr(PagedContext, "attend", lambda self, layer, q_HTD, *_, **__: torch.zeros_like(q_HTD))
    few, many = launches_of(2), launches_of(24)
    few.pop("clone")
    assert many.pop("clone") == 24  # The hidden state that each goes on from.
    assert many == few
    assert many["where"] == many["clamp_min"] == 0
