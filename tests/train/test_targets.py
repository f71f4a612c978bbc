"""Predictors of tokens.

Catches: a child's first token scored from the row before it instead of its parent's last; a label that is the row's own
token; a prediction for a token that nothing predicts; a predictor lost behind an empty segment.
"""

import numpy as np

from octopus.attention.plan import lower
from octopus.core.graph import Graph
from octopus.train.targets import targets


def scored_from(graph: Graph) -> dict[int, int]:
    """For each token that is predicted, the token whose hidden state predicts it. Tokens must be distinct."""
    plan = lower(graph.segments)
    result = targets(plan)
    return dict(zip(result.labels_N.tolist(), plan.tokens_T[result.predictor_rows_N].tolist(), strict=True))


def test_children_are_scored_from_their_parents_last_token() -> None:
    graph = Graph()
    root = graph.thread()
    graph.append(root, [10, 11])
    first, second = graph.fork(root, 2)
    graph.append(first, [20, 21])
    graph.append(second, [30])
    result = targets(lower(graph.segments))
    assert result.token_rows_N.tolist() == [1, 2, 3, 4]
    assert result.predictor_rows_N.tolist() == [0, 1, 2, 1]
    assert result.labels_N.tolist() == [11, 20, 21, 30]


def test_a_fork_within_a_segment_is_scored_from_the_fork_point() -> None:
    graph = Graph()
    root = graph.thread()
    graph.append(root, [10, 11, 12])
    mark = graph.mark(root)
    graph.append(root, [13])
    graph.rewind(root, mark)
    graph.append(root, [14])
    assert scored_from(graph) == {11: 10, 12: 11, 13: 12, 14: 12}


def test_the_token_after_a_mount_is_scored_from_its_own_path() -> None:
    graph = Graph()
    root = graph.thread()
    graph.append(root, [10])
    (child,) = graph.fork(root)
    graph.append(child, [20])
    graph.read_thread(root, child)
    (grandchild,) = graph.fork(root)  # forked from a segment that is still empty
    graph.append(grandchild, [30])
    assert scored_from(graph) == {20: 10, 30: 10}


def test_chosen_rows_keep_their_order_and_roots_have_no_predictor() -> None:
    graph = Graph()
    for tokens in ([1, 2], [3, 4]):
        graph.append(graph.thread(), tokens)
    result = targets(lower(graph.segments), np.array([3, 2, 1, 0]))
    assert result.token_rows_N.tolist() == [3, 1]
    assert result.labels_N.tolist() == [4, 2]
