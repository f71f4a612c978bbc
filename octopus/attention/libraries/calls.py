"""Slices as few large dense calls.

What one path sees is one triangle, however many segments it is cut into; rectangles that touch are one rectangle; and
blocks of one shape at equal distances (siblings are often laid out so) are one batch, taken as a view.

Letters: B blocks of a call, H heads, N rows of each, D head dimension, L rows of a tensor.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

from torch import Tensor

from octopus.attention.plan import Slice


@dataclass(frozen=True, kw_only=True)
class Spans:
    """Equal stretches of rows at equal distances; disjoint.

    Attributes:
        start: First row of the first.
        rows: Length of each.
        step: Distance between the first rows of neighbours.
        count: How many.
    """

    start: int
    rows: int
    step: int
    count: int

    def of(self, x_HLD: Tensor) -> Tensor:
        """A view `[B, H, N, D]` of them (of a tensor `[H, L]`: `[B, H, N]`)."""
        heads, along, *within = x_HLD.stride()
        return x_HLD.as_strided(
            (self.count, x_HLD.shape[0], self.rows, *x_HLD.shape[2:]),
            (self.step * along, heads, along, *within),
            x_HLD.storage_offset() + self.start * along,
        )


@dataclass(frozen=True, kw_only=True)
class Call:
    """Blocks that one dense call computes. Mirrored ones are causal, read backwards."""

    queries: Spans
    keys: Spans
    causal: bool
    mirrored: bool


def calls(slices: Iterable[Slice]) -> tuple[Call, ...]:
    """Deals slices without shifts to calls: each pair in one, no row and no key twice in a call."""
    shapes: dict[tuple[object, ...], list[Slice]] = defaultdict(list)
    for s in _rectangles(_triangles(list(slices))):
        shapes[s.causal, s.mirrored, s.q1 - s.q0, s.k1 - s.k0].append(s)
    return tuple(_call(run) for alike in shapes.values() for run in _even_runs(alike))


def _triangles(slices: list[Slice]) -> list[Slice]:
    """Joins two neighbouring causal squares and the rectangle between them to one square."""
    squares = {s.q0: s for s in slices if s.causal}
    between: dict[int, list[Slice]] = defaultdict(list)  # By first row.
    for s in slices:
        if not s.causal and not s.mirrored:
            between[s.q0].append(s)
    for start in sorted(squares):
        while start in squares and (below := squares.get(squares[start].q1)):
            square = squares[start]
            # The rows below see all of the square's keys, in as many rectangles as it was joined from.
            bridges = [
                s for s in between[below.q0] if s.q1 >= below.q1 and square.k0 <= s.k0 and s.k1 <= square.k1
            ]
            if sum(s.k1 - s.k0 for s in bridges) < square.k1 - square.k0:
                break
            between[below.q0] = [s for s in between[below.q0] if s not in bridges]
            between[below.q1] += [replace(s, q0=below.q1) for s in bridges if s.q1 > below.q1]
            del squares[below.q0]
            squares[start] = replace(square, q1=below.q1, k1=below.k1)
    return [*squares.values(), *(s for alike in between.values() for s in alike), *(s for s in slices if s.mirrored)]


def _rectangles(slices: list[Slice]) -> list[Slice]:
    """Joins rectangles of the same rows whose keys touch, then those of the same keys whose rows touch."""
    rest = [s for s in slices if s.causal or s.mirrored]
    wide = _touching([s for s in slices if not (s.causal or s.mirrored)], same=("q0", "q1"), along=("k0", "k1"))
    return rest + _touching(wide, same=("k0", "k1"), along=("q0", "q1"))


def _touching(slices: list[Slice], *, same: tuple[str, str], along: tuple[str, str]) -> list[Slice]:
    first, last = along
    joined: list[Slice] = []
    for s in sorted(slices, key=lambda s: tuple(getattr(s, name) for name in (*same, first))):
        before = joined[-1] if joined else None
        if before and all(getattr(before, name) == getattr(s, name) for name in same) and (
            getattr(before, last) == getattr(s, first)
        ):
            joined[-1] = replace(before, **{last: getattr(s, last)})
        else:
            joined.append(s)
    return joined


def _even_runs(alike: list[Slice]) -> list[list[Slice]]:
    """Cuts slices of one shape into runs whose rows and keys both advance by constant steps and never overlap."""
    runs: list[list[Slice]] = []
    for s in sorted(alike, key=lambda s: (s.q0, s.k0)):
        run = runs[-1] if runs else []
        if run and _advances(run, s):
            run.append(s)
        else:
            runs.append([s])
    return runs


def _advances(run: Sequence[Slice], s: Slice) -> bool:
    last = run[-1]
    steps = s.q0 - last.q0, s.k0 - last.k0
    if len(run) > 1:
        return steps == (last.q0 - run[-2].q0, last.k0 - run[-2].k0)
    return steps[0] >= s.q1 - s.q0 and steps[1] >= s.k1 - s.k0


def _call(run: Sequence[Slice]) -> Call:
    first, second = run[0], run[min(1, len(run) - 1)]
    return Call(
        queries=_spans(first.q0, first.q1, second.q0, len(run)),
        keys=_spans(first.k0, first.k1, second.k0, len(run)),
        causal=first.causal,
        mirrored=first.mirrored,
    )


def _spans(start: int, stop: int, second: int, count: int) -> Spans:
    # A single one steps by its own length: kernels that take strides dislike 0.
    return Spans(start=start, rows=stop - start, step=(second - start) or (stop - start), count=count)
