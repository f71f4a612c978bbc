"""The parts of a subject besides its mask and its descent.

Letters: T tokens, H query heads, G key/value heads, D head dim, N terms or entries, B losses, R block rows, C columns.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np


@dataclass(frozen=True, kw_only=True, slots=True, eq=False)
class BlockTable:
    """Which blocks of keys a block row of queries visits; the form of FlexAttention's BlockMask for one batch and head.

    Attributes:
        block_q: Queries a block.
        block_k: Keys a block.
        partial_count_R: How many of a row's `partial_RC` entries count: blocks where the element mask is applied.
        partial_RC: Indices of those blocks.
        full_count_R: The same for blocks that are visible as a whole; None if there are none.
        full_RC: Their indices.
    """

    block_q: int
    block_k: int
    partial_count_R: np.ndarray
    partial_RC: np.ndarray
    full_count_R: np.ndarray | None = None
    full_RC: np.ndarray | None = None


@dataclass(frozen=True, kw_only=True, slots=True, eq=False)
class Rotary:
    """How a model rotates. `scaling` has the fields of a Hugging Face configuration (`rope_type`, `factor`, ...)."""

    dim: int
    theta: float
    interleaved: bool | None = None
    scaling: Mapping[str, object] | None = None


@dataclass(frozen=True, kw_only=True, slots=True, eq=False)
class Heads:
    """Heads and what is known of how they are mapped.

    Attributes:
        query: H.
        key_value: G.
        dim: D.
        hidden: Width of the model, where it says something about D.
        max_positions: Longest sequence that the model was made for.
        window: Sliding window of the configuration.
        rotary: How keys and queries are rotated.
        tensor_parallel: Number of ranks that share the heads.
        used_H: The key/value head that each query head was seen to use (from a probe or a dump).
        rank_heads: For each rank the key/value heads that it holds.
        expanded_shape: Shape of keys after they were repeated, `(batch, heads, tokens, dim)` is right.
        gradient_HG: Size of the gradient that value head g got from a loss on query head h alone.
    """

    query: int
    key_value: int
    dim: int
    hidden: int | None = None
    max_positions: int | None = None
    window: int | None = None
    rotary: Rotary | None = None
    tensor_parallel: int = 1
    used_H: np.ndarray | None = None
    rank_heads: tuple[tuple[int, ...], ...] | None = None
    expanded_shape: tuple[int, int, int, int] | None = None
    gradient_HG: np.ndarray | None = None


@dataclass(frozen=True, kw_only=True, slots=True, eq=False)
class KeyCache:
    """Keys of one layer before and after rotation, `[T, G, D]` each, and the precision they were stored in."""

    before_TGD: np.ndarray
    after_TGD: np.ndarray
    dtype: str
    layer: int | None = None


@dataclass(frozen=True, kw_only=True, slots=True, eq=False)
class Resume:
    """A cache after a rewind or an eviction: positions of the tokens kept, and that of the next token."""

    kept_positions_N: np.ndarray
    next_position: int


@dataclass(frozen=True, kw_only=True, slots=True, eq=False)
class LossTerms:
    """Who is trained to predict what.

    Attributes:
        token_rows_N: Row of each supervised token.
        predictor_rows_N: Row whose hidden state predicts it.
        weights_N: How much the term counts; all 1 where missing.
        supervised_T: bool; the tokens that should have a term, where declared.
        sampled_T: bool; the tokens that the policy sampled.
        denominator: By what the sum was divided.
        declared_denominator: By what it should have been.
        log_ratio_N: Trainer's minus sampler's log-probability before the first update (OCT408).
        log_ratio_noise_N: Trainer's minus trainer's log-probability of the same tokens in another batch.
        dtype: Precision of `log_ratio_N`.
    """

    token_rows_N: np.ndarray
    predictor_rows_N: np.ndarray
    weights_N: np.ndarray | None = None
    supervised_T: np.ndarray | None = None
    sampled_T: np.ndarray | None = None
    denominator: float | None = None
    declared_denominator: float | None = None
    log_ratio_N: np.ndarray | None = None
    log_ratio_noise_N: np.ndarray | None = None
    dtype: str = "float32"


@dataclass(frozen=True, kw_only=True, slots=True, eq=False)
class EmbeddingGradients:
    """How far each loss reaches: `norms_BT` is the largest absolute entry of dL_b/dE_t.

    Attributes:
        norms_BT: Exact zero means no gradient.
        loss_rows: For each loss the rows of the tokens whose hidden states it reads.
    """

    norms_BT: np.ndarray
    loss_rows: tuple[np.ndarray, ...]


@dataclass(frozen=True, kw_only=True, slots=True, eq=False)
class PoolPage:
    """A page of a pool: its reference count as kept, and who holds it as found."""

    page: int
    generation: int
    count: int
    holders: tuple[str, ...]


@dataclass(frozen=True, kw_only=True, slots=True, eq=False)
class PoolState:
    """A page pool at one moment.

    Attributes:
        capacity: Pages in all.
        pages: Those in use.
        free: The free list, in its order.
        fenced: Given back, but still read by what was launched.
        loading: Being brought back from another tier.
        metrics: What the gauges say: `used`, `free`, ...
    """

    capacity: int
    pages: tuple[PoolPage, ...]
    free: tuple[int, ...]
    fenced: tuple[int, ...] = ()
    loading: tuple[int, ...] = ()
    metrics: Mapping[str, int] | None = None
