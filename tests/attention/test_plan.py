"""Plans: the layout, the published shapes, and what is refused."""

from __future__ import annotations

import numpy as np
import pytest
from shapes import deep, paper_143k, wide

from octopus.attention.exports import dense_view, interval_endpoints
from octopus.attention.plan import Plan, lower
from octopus.core.cursor import Cursor
from octopus.core.errors import PlanError
from octopus.core.graph import Graph
from octopus.core.mount import Mount
from octopus.core.segment import Segment
from octopus.core.waits import WaitEdge


def test_the_layout_of_the_example() -> None:
    """Catches: siblings in creation order, and one subtree end for a whole segment."""
    graph = Graph()
    root = graph.thread()
    graph.append(root, [0, 1])
    (b,) = graph.fork(root)
    graph.append(root, [2, 3])
    (a,) = graph.fork(root)
    graph.append(b, [6, 7])
    graph.append(a, [4, 5])
    plan = lower(graph.segments)
    assert plan.tokens_T.tolist() == [0, 1, 2, 3, 4, 5, 6, 7]
    assert plan.subtree_ends_T.tolist() == [8, 8, 6, 6, 6, 6, 8, 8]
    assert plan.predecessors_T.tolist() == [-1, 0, 1, 2, 3, 4, 1, 6]
    assert plan.positions_T.tolist() == [0, 1, 2, 3, 4, 5, 2, 3]
    assert [(run.start, run.stop, run.parent, run.level) for run in plan.runs.runs] == [
        (0, 2, -1, 0), (2, 6, 0, 1), (6, 8, 0, 1),
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("segments", "tokens", "pairs"),
    [(paper_143k(), 143_360, 5_142_288_384), (wide(), 20_992, None), (deep(), 30_208, 449_985_280)],
    ids=["paper-143k", "wide", "deep"],
)
def test_published_shapes_have_their_published_sizes(segments: list[Segment], tokens: int, pairs: int | None) -> None:
    """Catches: a mount that its descendants do not inherit, or that shows more than `last`."""
    plan = lower(segments)
    assert plan.length == tokens
    assert pairs is None or plan.pairs == pairs


def test_exports_agree_on_a_small_paper_episode() -> None:
    """Catches: slices that overlap, and endpoints that are derived from the same wrong slices."""
    plan = lower(paper_143k(scale=512))
    visible_TT, _ = dense_view(plan)
    assert visible_TT.sum() == plan.pairs
    endpoints_TM2 = interval_endpoints(plan)
    keys = np.arange(plan.length)
    within = (endpoints_TM2[:, :, :1] <= keys) & (keys < endpoints_TM2[:, :, 1:])
    assert (within.any(axis=1) == visible_TT).all()
    assert within.sum() == plan.pairs


def read_by_hand(graph: Graph, *, source_first: bool) -> list[Segment]:
    """A segment that mounts a token written at another event than the read says."""
    root = graph.thread()
    graph.append(root, [0])
    source, reader = graph.fork(root, 2)
    graph.append(source, [1])
    segment = source.cursor.segment
    if not source_first:
        segment.stamps[:] = [(0, 99)]
    mount = Mount(source=Cursor(segment, 1), start=1, base=1, placement="append")
    graph.append(reader, [2])
    reader.cursor.segment.mounts = (mount,)
    return graph.segments


def test_a_mount_of_what_was_written_later_is_refused() -> None:
    """Catches: training on a read that no rollout could have made."""
    assert lower(read_by_hand(Graph(), source_first=True)).length == 3
    with pytest.raises(PlanError, match=r"mounts tokens \[0, 1\) of .* written at event 99: a mount shows only"):
        lower(read_by_hand(Graph(), source_first=False))


def test_waits_become_edges_and_a_cycle_is_refused() -> None:
    """Catches: two threads that each went on after the other, as a forged or corrupted trace may say."""
    graph = Graph()
    root = graph.thread()
    graph.append(root, [0])
    one, two = graph.fork(root, 2)
    graph.append(one, [1])
    graph.wait_threads(two, [one], until="snapshot")
    graph.commit(one)
    graph.append(two, [2, 3])
    plan: Plan = lower(graph.segments, waits=graph.waits)
    assert plan.wait_edges == ((1, 2),)
    edge = graph.waits[0]
    forged = WaitEdge(waiter=edge.awaited, awaited=Cursor(two.cursor.segment, 2), order=1, thread=one.id)
    with pytest.raises(PlanError, match="the waits form a cycle or run against time"):
        lower(graph.segments, waits=[edge, forged])


def test_waits_of_episodes_with_graphs_of_their_own_do_not_mix() -> None:
    """Catches: rows found by thread number alone, which other episodes of the pack use too."""

    def episode() -> Graph:
        graph = Graph()
        root = graph.thread()
        graph.append(root, [0])
        (child,) = graph.fork(root)
        graph.append(child, [1])
        graph.wait_threads(root, [child])
        graph.commit(child)
        graph.append(root, [2, 3])
        return graph

    one, two = episode(), episode()
    assert lower(one.segments, waits=one.waits).wait_edges == ((3, 1),)
    both = lower(one.segments + two.segments, waits=one.waits + two.waits)
    assert both.wait_edges == ((3, 1), (7, 5))


def test_what_leads_outside_is_refused() -> None:
    """Catches: a key error deep inside, or a mount that is silently left out."""
    graph = Graph()
    root = graph.thread()
    graph.append(root, [0])
    source, reader = graph.fork(root, 2)
    graph.append(source, [1])
    graph.read_thread(reader, source)
    graph.append(reader, [2])
    first, second, third = graph.segments
    with pytest.raises(PlanError, match=r"continues Segment\(0, 1 tokens\), which is not among the segments given"):
        lower([second, third])
    with pytest.raises(PlanError, match=r"mounts Segment\(1, 1 tokens\), which is not among the segments given"):
        lower([first, third])


def test_nothing_lowers_to_an_empty_row() -> None:
    """Catches: an index into nothing."""
    plan = lower([])
    assert (plan.length, plan.pairs, plan.runs.runs, interval_endpoints(plan).shape) == (0, 0, (), (0, 0, 2))
    empty = Graph()
    empty.thread()
    assert lower(empty.segments).length == 0
