"""Non-interference of somebody's function on somebody's batch: change one row, and look at who moves.

Tolerance is zero: with the layout unchanged, a row that must not be influenced has to keep every bit. A run in which
nothing moved that may move proves nothing and does not pass.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from octopus.verify.case import Case
from octopus.verify.inputs import Hints
from octopus.verify.names import Names
from octopus.verify.readers.bag import Bag, Stored
from octopus.verify.readers.reading import subjects
from octopus.verify.subject import DenseMask, Descent, Subject

MAX_TOKENS = 4096
TOKENS = "input_ids"


@dataclass(frozen=True, kw_only=True, slots=True, eq=False)
class Influence:
    """`may_TT[q, k]`: whether row q may be influenced by row k, over any number of layers."""

    may_TT: np.ndarray
    names: Names


def require_isolated(
    fn: Callable[[Any], Any], batch: Any, graph: Any, *, rows: Sequence[int] | None = None
) -> None:
    """Runs `fn` once for each row, with that row changed, and compares all rows bit by bit.

    Args:
        fn: Takes the batch; returns one row a token, `[T, ...]` or `[1, T, ...]`, or a list of such (one a layer, first
            to last). It must not keep state between calls.
        batch: Token ids `[T]` or `[1, T]`, embeddings `[T, C]` or `[1, T, C]`, or a mapping with `input_ids`. It is
            copied, never changed.
        graph: Who descends from whom: predecessors (-1 for none), a mapping by the names that files use (`parents`,
            `document_ids`, `cu_seqlens`, `segments`, `mounts`), a `Descent`, or a bool matrix of who may see whom.
        rows: The rows to change; all where not given.

    Raises:
        AssertionError: a row moved that must not (OCT505), two equal runs differ (OCT509), or nothing moved that may
            (OCT506).
    """
    length = _length(batch)
    influence = influence_of(graph, length)
    clean = _outputs(fn(batch), length)
    if place := _first_difference(clean, _outputs(fn(batch), length), np.ones(length, dtype=bool)):
        raise AssertionError(f"OCT509 two runs of the same batch differ at {_say(place, influence)}: cannot tell")
    moved, leaks = False, []
    for row in range(length) if rows is None else rows:
        changed = _outputs(fn(_changed(batch, row)), length)
        may_T = influence.may_TT[:, row].copy()
        if place := _first_difference(clean, changed, ~may_T):
            leaks.append((place, row))
        may_T[row] = False
        moved = moved or _first_difference(clean, changed, may_T) is not None
    if leaks:
        # In the first layer a row moves by what it sees itself, later also by what that has seen.
        place, row = min(leaks)
        raise AssertionError(
            f"OCT505 {_say(place, influence)} moves when {influence.names.say(row)} changes, which must not influence "
            f"it ({len(leaks)} rows reach where they must not)"
        )
    if not moved:
        raise AssertionError("OCT506 vacuous: no change moved any row that it may move, so nothing was shown")


def influence_of(graph: Any, length: int) -> Influence:
    """The transitive closure of what the graph lets see. Raises `ValueError` for a graph that does not fit."""
    if length > MAX_TOKENS:
        raise ValueError(f"{length:,} tokens; at most {MAX_TOKENS:,} are checked with one run each")
    subject = _subject(graph, length)
    case = Case(subject)
    visible = case.seen if isinstance(subject.mask, DenseMask) else case.allowed
    if visible is None or subject.length != length:
        fault = case.malformed or f"it describes {subject.length} rows"
        raise ValueError(f"the graph does not describe a batch of {length} rows: {fault}")
    may_TT = np.eye(length, dtype=bool)
    for q, k0, k1 in zip(*visible.runs(), strict=True):
        may_TT[q, k0:k1] = True
    while True:
        wider = (may_TT.astype(np.float32) @ may_TT.astype(np.float32)) > 0
        if (wider == may_TT).all():
            return Influence(may_TT=may_TT, names=case.names)
        may_TT = wider


def _subject(graph: Any, length: int) -> Subject:
    if isinstance(graph, Descent):
        return Subject(name="batch", length=length, descent=graph)
    if isinstance(graph, Mapping):
        plain = {name: _plain(value) for name, value in graph.items() if not _is_table(value)}
        arrays = {name: Stored(array=array, dtype=array.dtype.name) for name, array in plain.items()}
        tables = {name: value for name, value in graph.items() if _is_table(value)}
        (subject,) = subjects(Bag(arrays=arrays, tables=tables), Hints())
        return subject
    array = _plain(graph)
    if array.ndim == 2 and array.dtype == np.bool_:
        mask = DenseMask(seen_HQK=array[None], convention="bool, True = visible")
        return Subject(name="batch", length=len(array), mask=mask)
    return Subject(name="batch", length=length, descent=Descent(parents_T=array))


def _is_table(value: Any) -> bool:
    return isinstance(value, str) or (isinstance(value, list) and bool(value) and isinstance(value[0], dict))


def _plain(value: Any) -> np.ndarray:
    """A numpy copy of an array or a tensor (bfloat16 is widened, which is exact)."""
    if hasattr(value, "detach"):
        value = value.detach().cpu()
        value = (value.float() if str(value.dtype) == "torch.bfloat16" else value).numpy()
    return np.array(value)


def _length(batch: Any) -> int:
    tokens = batch[TOKENS] if isinstance(batch, Mapping) else batch
    shape = tuple(tokens.shape)
    rows = shape[1:] if len(shape) > 1 and shape[0] == 1 else shape
    if not 1 <= len(rows) <= 2 or (len(rows) == 2 and _is_integer(tokens)):
        raise ValueError(f"a batch of shape {shape}; tokens are [T] or [1, T], embeddings [T, C] or [1, T, C]")
    return int(rows[0])


def _is_integer(tokens: Any) -> bool:
    return "int" in str(tokens.dtype)


def _changed(batch: Any, row: int) -> Any:
    """A copy with one row exchanged: for another token of the batch, or for other numbers of the same size."""
    if isinstance(batch, Mapping):
        return {**batch, TOKENS: _changed(batch[TOKENS], row)}
    copy = batch.detach().clone() if hasattr(batch, "detach") else batch.copy()
    rows = copy[0] if len(copy.shape) > 1 and copy.shape[0] == 1 else copy
    if _is_integer(batch):
        tokens = _plain(rows)
        others = tokens[tokens != tokens[row]]
        rows[row] = int(others[0]) if len(others) else int(tokens[row] == 0)
    else:
        rows[row] = 1 - rows[row]
    return copy


def _outputs(result: Any, length: int) -> list[np.ndarray]:
    """One array `[T, ...]` a layer."""
    layers = [_plain(layer) for layer in (result if isinstance(result, list | tuple) else [result])]
    found = []
    for layer in layers:
        rows = layer[0] if layer.ndim > 1 and len(layer) == 1 and length != 1 else layer
        if len(rows) != length:
            raise ValueError(f"fn returned shape {layer.shape} for a batch of {length} rows")
        found.append(rows.reshape(length, -1))
    return found


def _first_difference(
    before: list[np.ndarray], after: list[np.ndarray], rows_T: np.ndarray
) -> tuple[int, int, int] | None:
    """Layer, number of layers and row of the first of the rows that does not have the same bits; None if all have."""
    for layer, (x_TD, y_TD) in enumerate(zip(before, after, strict=True)):
        if x_TD.shape != y_TD.shape:
            raise ValueError(f"fn returned shapes {x_TD.shape} and {y_TD.shape} for equal batches")
        moved_T = np.fromiter(_rows_differ(x_TD, y_TD), dtype=bool, count=len(x_TD)) & rows_T
        if moved_T.any():
            return layer, len(before), int(np.flatnonzero(moved_T)[0])
    return None


def _rows_differ(x_TD: np.ndarray, y_TD: np.ndarray) -> Iterator[bool]:
    return (x.tobytes() != y.tobytes() for x, y in zip(x_TD, y_TD, strict=True))


def _say(place: tuple[int, int, int], influence: Influence) -> str:
    layer, layers, row = place
    return influence.names.say(row) + (f", layer {layer}" if layers > 1 else "")
