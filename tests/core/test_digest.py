"""Digests say what a cursor sees, and nothing of how its path is cut."""

from __future__ import annotations

from octopus.core.graph import Graph


def committed(build) -> bytes:
    graph = Graph()
    return graph.commit(build(graph)).digest


def straight(graph: Graph):
    thread = graph.thread()
    graph.append(thread, [1, 2, 3, 4])
    return thread


def cut_by_a_fork(graph: Graph):
    thread = graph.thread()
    graph.append(thread, [1, 2])
    (child,) = graph.fork(thread)
    graph.append(child, [3, 4])
    return child


def looked_at(graph: Graph):
    thread = graph.thread()
    for token in (1, 2, 3, 4):
        graph.append(thread, [token])
        graph.commit(thread, keep_running=True)
    return thread


def reading(tokens: list[int], *, cut: bool, last: int | None = None, placement: str = "append"):
    def build(graph: Graph):
        root = graph.thread()
        graph.append(root, [1])
        source, reader = graph.fork(root, 2)
        graph.append(source, tokens[:2])
        if cut:
            (source,) = graph.fork(source)
        graph.append(source, tokens[2:])
        graph.append(reader, [9])
        graph.read_thread(reader, source, last=last, placement=placement)
        graph.append(reader, [7])
        return reader

    return build


def test_the_cut_of_a_path_does_not_matter() -> None:
    """Catches: hashing segment by segment, or from the last snapshot on."""
    assert committed(straight) == committed(cut_by_a_fork) == committed(looked_at)
    assert committed(reading([2, 3, 4], cut=False)) == committed(reading([2, 3, 4], cut=True))


def test_all_that_is_seen_matters() -> None:
    """Catches: leaving out positions, mounts, or what mounted tokens carry."""
    digests = [
        committed(reading([2, 3, 4], cut=False)),
        committed(reading([2, 3, 5], cut=False)),
        committed(reading([2, 3, 4], cut=False, last=1)),
        committed(reading([2, 3, 4], cut=False, placement="original")),
        committed(reading([5, 3, 4], cut=False, last=1)),
        committed(straight),
    ]
    assert len(set(digests)) == len(digests)


def test_a_digest_at_depth_needs_no_recursion() -> None:
    """Catches: recursion over parents, which ends at Python's limit."""
    graph = Graph()
    thread = graph.thread()
    for _ in range(900):
        graph.append(thread, [1])
        (thread,) = graph.fork(thread)
    graph.append(thread, [1])
    assert len(graph.commit(thread).digest) == 16
