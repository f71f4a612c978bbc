"""What a reader gives and an audit takes: one row of tokens, and everything that is known of it.

Rows are tokens of one sequence (or packed row) counted from 0; a batch becomes one subject a batch row. All arrays are
numpy, all ranges half-open. Every field but the name and the length may be missing: an audit names the ones it needs.

Letters: T tokens, Q query rows, H heads, S slices, N entries.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np

from octopus.verify.facets import (
    BlockTable,
    EmbeddingGradients,
    Heads,
    KeyCache,
    LossTerms,
    PoolState,
    Resume,
)

FULL, CAUSAL, INVERSE, BICAUSAL = range(4)
"""Kinds of a slice. CAUSAL ends at the bottom right corner (the last query sees the last key), INVERSE begins at the
top left one (the first query sees the first key), BICAUSAL does both."""


@dataclass(frozen=True, kw_only=True, slots=True, eq=False)
class DenseMask:
    """A mask as a matrix.

    Attributes:
        seen_HQK: bool; whether a query sees a key. One head stands for all.
        values_HQK: The additive values as they were stored, None for a bool mask.
        convention: What the reader took it for, for the user: "bool, True = visible".
    """

    seen_HQK: np.ndarray
    values_HQK: np.ndarray | None = None
    convention: str


@dataclass(frozen=True, kw_only=True, slots=True, eq=False)
class Ranges:
    """A mask as slices: int64 `[S, 5]` with columns q0, q1, k0, k1, kind. Slices must not overlap (OCT115).

    Attributes:
        shifts_S: What is added to the keys' own positions, for each slice; None if nobody shifts, or it is not known.
    """

    slices_S5: np.ndarray
    shifts_S: np.ndarray | None = None
    convention: str = "ranges"


@dataclass(frozen=True, kw_only=True, slots=True)
class Mount:
    """Keys `[k0, k1)` are visible to row `at` and to everything below it on the path.

    Attributes:
        shift: What is added to the keys' own positions; None if not known.
        placement: `append` takes positions of its own, `original` leaves them; None if not known.
    """

    at: int
    k0: int
    k1: int
    shift: int | None = None
    placement: Literal["append", "original"] | None = None


@dataclass(frozen=True, slots=True)
class Stretch:
    """A named run of rows: a segment, a document, a turn."""

    name: str
    start: int
    stop: int


@dataclass(frozen=True, slots=True)
class SegmentRow:
    """A line of a segment table. `fork_length`: how many tokens of the parent it continues; None for all of them."""

    id: str
    parent: str | None
    start: int
    length: int
    fork_length: int | None = None


@dataclass(frozen=True, kw_only=True, slots=True, eq=False)
class Descent:
    """Who descends from whom, exactly as it was declared: any one of the forms, well-formed or not.

    Attributes:
        parents_T: Row of the previous token on the path, -1 where a path begins.
        intervals_T2: Tree intervals (tin, tout): a descendant's lies within its ancestor's.
        segments: A segment table.
        documents_T: Number of the document that a row is in; rows of a document follow each other.
        stretches: Names for reports; found from the above where empty.
        mounts: What else becomes visible, and from which row on.
        times_T: When each token was written; row order where missing.
    """

    parents_T: np.ndarray | None = None
    intervals_T2: np.ndarray | None = None
    segments: tuple[SegmentRow, ...] | None = None
    documents_T: np.ndarray | None = None
    stretches: tuple[Stretch, ...] = ()
    mounts: tuple[Mount, ...] = ()
    times_T: np.ndarray | None = None


@dataclass(frozen=True, kw_only=True, slots=True, eq=False)
class Declared:
    """What the owner says is on purpose.

    Attributes:
        window: A row sees its last so many tokens (itself included) on the path; measured in positions where known.
        sinks: The first so many tokens of the path stay visible all the same.
        bidirectional: Ranges of rows that see each other both ways.
        varies_by_head: Heads may have masks of their own.
        forbidden: Pairs between which nothing may flow, not even through others (OCT111).
        loss_weights: Supervised tokens may count with weights other than once.
    """

    window: int | None = None
    sinks: int = 0
    bidirectional: tuple[tuple[int, int], ...] = ()
    varies_by_head: bool = False
    forbidden: Ranges | None = None
    loss_weights: bool = False


@dataclass(frozen=True, kw_only=True, slots=True, eq=False)
class Positions:
    """Position ids `[A, T]` (one axis; 3 or 4 for multi-axis rotary), as stored."""

    ids_AT: np.ndarray
    dtype: str
    inverse_frequency_dtype: str | None = None


@dataclass(frozen=True, kw_only=True, slots=True, eq=False)
class Boundaries:
    """Cumulative lengths exactly as they were given; `keys_N` where those of the keys differ."""

    queries_N: np.ndarray
    keys_N: np.ndarray | None = None


@dataclass(frozen=True, kw_only=True, slots=True, eq=False)
class Events:
    """A trace: one mapping an event, and the file's line of each (counted from 1)."""

    events: tuple[Mapping[str, Any], ...]
    lines: tuple[int, ...]


@dataclass(frozen=True, kw_only=True, slots=True, eq=False)
class Subject:
    """One row of tokens under audit.

    Attributes:
        name: For reports: `batch0`, `episode 3`.
        source: File as given on the command line, None for something in memory.
        length: T, the number of tokens (key rows).
        query_start: Row at which the first query stands; queries are the last rows in a decoding dump.
        mask: What a stack shows to whom.
        blocks: A block-sparse table, with or without the mask that it abbreviates.
        descent: Who descends from whom.
        declared: What is on purpose.
        padding_T: bool; rows that are padding.
        boundaries: Cumulative lengths.
        positions, heads, keys, resume, loss, gradients, pool, events: see their types.
        notes: What the reader assumed or derived.
    """

    name: str
    length: int
    source: str | None = None
    query_start: int = 0
    mask: DenseMask | Ranges | None = None
    blocks: BlockTable | None = None
    descent: Descent | None = None
    declared: Declared = Declared()
    padding_T: np.ndarray | None = None
    boundaries: Boundaries | None = None
    positions: Positions | None = None
    heads: Heads | None = None
    keys: KeyCache | None = None
    resume: Resume | None = None
    loss: LossTerms | None = None
    gradients: EmbeddingGradients | None = None
    pool: PoolState | None = None
    events: Events | None = None
    notes: tuple[str, ...] = ()
