"""Digests with mounts: the same whoever cut the paths, different as soon as anything is seen elsewhere."""

from __future__ import annotations

from itertools import combinations

from octopus.core.digest import Digests
from octopus.core.graph import Graph
from octopus.core.thread import Thread

TOKENS = [11, 12, 13, 14]


def source(graph: Graph, root: Thread, cuts: tuple[int, ...]) -> Thread:
    """A thread below `root` that has written the tokens, in as many segments as it has cuts, and one more."""
    (thread,) = graph.fork(root)
    for start, stop in zip((0, *cuts), (*cuts, len(TOKENS)), strict=True):
        graph.append(thread, TOKENS[start:stop])
        if stop < len(TOKENS):
            (thread,) = graph.fork(thread)
    return thread


def digest_of_a_reader(cuts: tuple[int, ...], *, last: int | None, placement: str, shifted: int = 0) -> bytes:
    """What somebody sees who has `shifted` tokens of his own and then reads."""
    graph = Graph()
    root = graph.thread()
    graph.append(root, [1, 2, 3])
    (reader,) = graph.fork(root)
    graph.append(reader, [5] * (1 + shifted))
    graph.read_thread(reader, source(graph, root, cuts), last=last, placement=placement)  # type: ignore[arg-type]
    graph.append(reader, [9])
    return Digests().of(reader.cursor)


def test_how_a_source_is_cut_does_not_matter() -> None:
    """Catches: runs that are not joined where two segments meet, on the path or in the positions."""
    cuts = [cut for count in range(3) for cut in combinations(range(1, len(TOKENS)), count)]
    for last in (None, 1, 2, 3):
        for placement in ("append", "original"):
            digests = {digest_of_a_reader(cut, last=last, placement=placement) for cut in cuts}
            assert len(digests) == 1, (last, placement)


def test_what_is_seen_where_does_matter() -> None:
    """Catches: a digest that forgets how much was mounted, or at which positions."""
    digests = [
        digest_of_a_reader((), last=last, placement=placement, shifted=shifted)
        for last in (None, 1, 2)
        for placement in ("append", "original")
        for shifted in (0, 4)
    ]
    assert len(set(digests)) == len(digests)
