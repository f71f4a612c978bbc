"""What plans say of who sees whom, against the raw-list oracle: exactly, on thousands of random graphs.

Catches a wrong layout or subtree end, a mount that is seen by too few or too many, a wrong shift, a hole in the
positions, a pair counted twice, and exports that disagree with each other.
"""

import numpy as np
import pytest
from graph_features import FEATURES, features_of
from random_graphs import APPEND_ONLY, RandomEpisode, lowered, random_episode

from octopus.attention.exports import dense_view, interval_endpoints
from octopus.attention.plan import lower
from octopus.attention.runs import ancestor_rows
from octopus.core.graph import Graph

CHUNKS, GRAPHS_PER_CHUNK = 8, 300
SIZES = (8, 22, 40, 22, 60, 22, 8, 150)


def expected_view(episode: RandomEpisode, rows: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """`dense_view` as the oracle has it: -1 stands for the position of a key that is not seen."""
    total = len(rows)
    visible, positions = np.zeros((total, total), dtype=bool), np.full((total, total), -1)
    for row, token in zip(rows, episode.oracle.tokens, strict=True):
        for token_id, position in token.visible:
            visible[row, rows[token_id]] = True
            positions[row, rows[token_id]] = position
    return visible, positions


@pytest.mark.parametrize("chunk", range(CHUNKS))
def test_plan_equals_oracle(chunk: int) -> None:
    for seed in range(chunk * GRAPHS_PER_CHUNK, (chunk + 1) * GRAPHS_PER_CHUNK):
        episode = random_episode(seed, size=SIZES[seed % len(SIZES)])
        tokens = episode.oracle.tokens
        plan, rows = lowered(episode)
        assert sorted(rows) == list(range(plan.length)), seed
        assert plan.tokens_T[rows].tolist() == [token.value for token in tokens], seed
        assert plan.positions_T[rows].tolist() == [token.position for token in tokens], seed
        predecessors = [-1 if token.predecessor is None else rows[token.predecessor] for token in tokens]
        assert plan.predecessors_T[rows].tolist() == predecessors, seed
        visible, positions = expected_view(episode, rows)
        seen, seen_at = dense_view(plan)
        assert np.array_equal(seen, visible), seed
        assert np.array_equal(np.where(seen, seen_at, -1), positions), seed


@pytest.mark.parametrize("chunk", range(2))
def test_exports_agree_and_no_pair_is_counted_twice(chunk: int) -> None:
    for seed in range(chunk * GRAPHS_PER_CHUNK, (chunk + 1) * GRAPHS_PER_CHUNK):
        plan, _ = lowered(random_episode(seed, size=SIZES[seed % len(SIZES)]))
        visible, positions = dense_view(plan)
        counts = np.zeros_like(positions)
        for piece in plan.slices:
            block = np.tri(
                piece.q1 - piece.q0, piece.k1 - piece.k0, 0 if piece.causal else plan.length, dtype=bool
            )
            area = np.s_[piece.q0 : piece.q1, piece.k0 : piece.k1]
            counts[area] += block
            assert (positions[area] == plan.positions_T[piece.k0 : piece.k1] + piece.shift)[block].all(), seed
        assert np.array_equal(counts, visible), seed
        assert plan.pairs == counts.sum(), seed
        from_intervals = np.zeros_like(positions)
        for row, intervals in enumerate(interval_endpoints(plan)):
            for start, stop in intervals:
                from_intervals[row, start:stop] += 1
        assert np.array_equal(from_intervals, visible), seed


@pytest.mark.parametrize("chunk", range(2))
def test_path_visibility_is_one_interval_a_key(chunk: int) -> None:
    for seed in range(chunk * GRAPHS_PER_CHUNK, (chunk + 1) * GRAPHS_PER_CHUNK):
        plan, _ = lowered(random_episode(seed, size=SIZES[seed % len(SIZES)]))
        ancestors = ancestor_rows(plan.predecessors_T, plan.length)
        on_path = np.zeros((plan.length, plan.length + 1), dtype=bool)
        on_path[np.arange(plan.length), ancestors] = True
        row, key = np.indices((plan.length, plan.length))
        assert np.array_equal(on_path[:, :-1], (key <= row) & (row < plan.subtree_ends_T[key])), seed


def test_waits_lead_forward_in_time() -> None:
    found = 0
    for seed in range(GRAPHS_PER_CHUNK):
        plan, rows = lowered(random_episode(seed, size=22))
        ids = np.argsort(rows)
        found += len(plan.wait_edges)
        assert all(ids[awaited] < ids[waiter] for awaited, waiter in plan.wait_edges), seed
    assert found > 0


@pytest.mark.parametrize("chunk", range(2))
def test_append_only_views_have_no_holes(chunk: int) -> None:
    for seed in range(chunk * GRAPHS_PER_CHUNK, (chunk + 1) * GRAPHS_PER_CHUNK):
        episode = random_episode(seed, size=SIZES[seed % len(SIZES)], features=APPEND_ONLY)
        visible, positions = dense_view(lowered(episode)[0])
        for row, row_positions in zip(visible, positions, strict=True):
            assert sorted(row_positions[row]) == list(range(row.sum())), seed


def test_three_threads_reading_each_other_stay_near_their_tokens() -> None:
    graph = Graph()
    root = graph.thread()
    graph.append(root, [0, 1, 2, 3])
    threads = graph.fork(root, 3)
    for _ in range(12):
        for thread in threads:
            graph.append(thread, [4])
        for reader in threads:
            for source in threads:
                graph.read_thread(reader, source)
            graph.append(reader, [5])
    visible, positions = dense_view(lower(graph.segments))
    assert positions[visible].max() == visible.sum(axis=1).max() - 1 < 200


def test_random_graphs_reach_everything() -> None:
    covered: set[str] = set()
    for seed in range(2 * GRAPHS_PER_CHUNK):
        covered |= features_of(random_episode(seed, size=SIZES[seed % len(SIZES)]))
    assert covered == FEATURES
