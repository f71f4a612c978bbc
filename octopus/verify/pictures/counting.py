"""How many pairs of a set lie in each tile of a grid, without a matrix of all pairs."""

from __future__ import annotations

import numpy as np

from octopus.verify.pairs import Pairs


def tile_counts(pairs: Pairs, tile_q: int, tile_k: int) -> np.ndarray:
    """`[rows, columns]` int64: pairs in each tile of `tile_q` queries by `tile_k` keys; the last are smaller."""
    rows, columns = -(-pairs.length // tile_q), -(-pairs.length // tile_k)
    q_N, k0_N, k1_N = pairs.runs()
    row_N, first_N, last_N = q_N // tile_q, k0_N // tile_k, (k1_N - 1) // tile_k
    # A run gives each tile from its first to its last the whole width, less what lies outside of the run at both ends.
    width = columns + 1
    steps = _sum(row_N * width + first_N, tile_k, rows * width) - _sum(row_N * width + last_N + 1, tile_k, rows * width)
    counts = np.cumsum(steps.reshape(rows, width), axis=1)[:, :columns]
    outside = _sum(row_N * columns + first_N, k0_N - first_N * tile_k, rows * columns)
    outside += _sum(row_N * columns + last_N, (last_N + 1) * tile_k - k1_N, rows * columns)
    found: np.ndarray = counts - outside.reshape(rows, columns)
    return found


def tile_areas(length: int, tile_q: int, tile_k: int) -> np.ndarray:
    """`[rows, columns]`: all pairs of each tile."""
    sides = [
        np.diff(np.append(np.arange(0, length, tile), length)) if length else np.zeros(0, dtype=np.int64)
        for tile in (tile_q, tile_k)
    ]
    return np.outer(*sides)


def _sum(places: np.ndarray, values: np.ndarray | int, size: int) -> np.ndarray:
    """Values added up by place, exactly (sums stay far below 2**53)."""
    weights = np.broadcast_to(np.asarray(values, dtype=np.float64), places.shape)
    return np.bincount(places, weights=weights, minlength=size)[:size].astype(np.int64)
