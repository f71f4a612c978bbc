"""What runs against time is refused, through empty segments too; and cutting a segment at its forks is linear."""

from __future__ import annotations

import time

import pytest

from octopus.attention.plan import lower
from octopus.core.cursor import Cursor
from octopus.core.errors import PlanError
from octopus.core.graph import Graph
from octopus.core.mount import Mount
from octopus.core.segment import Segment


def segment(index: int, parent: Cursor | None, *, tokens: int = 0, order: int = 0, start: int = 0) -> Segment:
    made = Segment(
        index=index, parent=parent, start_position=start, writer=index, opened_at=0, weights_version=0
    )
    if tokens:
        made.stamps, made.tokens = [(0, order)], [1] * tokens
    return made


def mount(source: Segment) -> Mount:
    return Mount(source=Cursor(source, len(source.tokens)), start=1, base=1, placement="append")


def test_a_mount_is_looked_for_through_empty_segments() -> None:
    """Catches: a mount of something written later that an empty segment above hands on."""
    root = segment(0, None, tokens=1, order=1)
    source = segment(1, Cursor(root, 1), tokens=2, order=10, start=1)
    empty = segment(2, Cursor(root, 1), start=3)
    empty.mounts = (mount(source),)
    reader = segment(3, Cursor(empty, 0), tokens=1, order=5, start=3)
    with pytest.raises(PlanError, match="were written at event 10: a mount shows only what exists"):
        lower([root, source, empty, reader])


def test_readers_of_each_other_are_refused() -> None:
    """Catches: a cycle of mounts whose sides claim to have been written by one event."""
    root = segment(0, None, tokens=1, order=1)
    above = [segment(1, Cursor(root, 1), start=3), segment(2, Cursor(root, 1), start=3)]
    below = [segment(3 + i, Cursor(empty, 0), tokens=1, order=5, start=3) for i, empty in enumerate(above)]
    for empty, other in zip(above, reversed(below), strict=True):
        empty.mounts = (mount(other),)
    with pytest.raises(PlanError, match="a mount shows only what exists"):
        lower([root, *above, *below])


def test_a_line_is_looked_for_through_empty_segments() -> None:
    """Catches: a child that began before what it continues, with an empty segment between them."""
    root = segment(0, None, tokens=1, order=9)
    empty = segment(1, Cursor(root, 1), start=1)
    child = segment(2, Cursor(empty, 0), tokens=1, order=5, start=1)
    with pytest.raises(PlanError, match=r"before Cursor\(0:1\) that it continues was written"):
        lower([root, empty, child])


def test_many_forks_of_one_segment_take_linear_time() -> None:
    """Catches: going through all children at every fork offset."""

    def lower_s(forks: int) -> float:
        graph = Graph()
        root = graph.thread()
        for _ in range(forks):
            graph.append(root, [1])
            (child,) = graph.fork(root)
            graph.append(child, [2])
        start = time.perf_counter()
        lower(graph.segments)
        return time.perf_counter() - start

    assert min(lower_s(4000) / lower_s(500) for _ in range(3)) < 24  # 8 times as many; squared it is 64.
