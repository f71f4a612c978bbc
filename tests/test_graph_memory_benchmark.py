"""The memory of the rollout graph of `paper-143k`: what its pools hold at most is what must be held, and no more."""

from __future__ import annotations

import graph_memory
import pytest
from graph_memory import Held, Lengths, copies, play, shared, text_with_a_prefix_cache
from shapes import paper_143k

from octopus.core.graph import Graph

SMALL = Lengths().divided(64)


def test_the_high_water_mark_is_the_closed_form() -> None:
    """Catches: a fork, mount or commit that takes a page, pages kept twice, a state for each step or reader."""
    assert play(SMALL) == shared(SMALL) == Held(tokens=2_240, states=26)
    assert sum(len(segment.tokens) for segment in paper_143k(64)) == 2_240


def test_copied_branches_would_show(monkeypatch: pytest.MonkeyPatch) -> None:
    """Catches: a high-water mark that nothing can raise. Here each branch is given its parent's text again."""

    def copied(graph: Graph, root: object, n: int) -> list[object]:
        branches = [graph.thread() for _ in range(n)]
        graph_memory.write(graph, branches, SMALL.root)
        return branches

    monkeypatch.setattr(Graph, "fork", copied)
    assert play(SMALL).tokens == shared(SMALL).tokens + graph_memory.BRANCHES * SMALL.root


def test_the_closed_forms_are_the_published_ones_and_keep_the_bounds() -> None:
    """Catches: a rival that is made larger than it is, a bound that only a wrong shape keeps."""
    held = shared(Lengths())
    rivals = {"copies": copies(Lengths()), "text with a prefix cache": text_with_a_prefix_cache(Lengths())}
    assert (held.tokens, *(rival.tokens for rival in rivals.values())) == (143_360, 610_304, 217_088)
    assert held.kv_bytes == 143_360 * 8 * 2 * 4 * 256 * 2
    assert held.bytes - held.kv_bytes == 26 * 24 * (32 * 128 * 128 * 4 + 3 * 8_192 * 2)
    for name, rival in rivals.items():
        below = held.below(rival)
        assert all(times >= bound for times, bound in zip(below, graph_memory.BOUNDS[name], strict=True)), (name, below)
