"""What a mask says about itself: whether any history could have made it, and what reaches whom over several layers."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from octopus.verify.audits.audit import Audit, NotNeeded
from octopus.verify.case import Case, known
from octopus.verify.chains import Chains
from octopus.verify.findings import Finding, Witness
from octopus.verify.groups import gather
from octopus.verify.pairs import Pairs, of_slices
from octopus.verify.rules import finding
from octopus.verify.subject import CAUSAL, FULL

LOOKS = 200_000
"""Pairs of rows whose views are compared; a clean mask needs about the square of the number of its segments."""


def partial_order(case: Case) -> Iterator[Finding]:
    """OCT110, where nothing else says what the mask should be."""
    declared = case.subject.declared
    if case.lineage is not None:
        raise NotNeeded("the descent is known, which says more")
    if declared.window is not None or declared.bidirectional:
        raise NotNeeded("a window or a bidirectional range is declared")
    seen = case.judged(known(case.seen))
    yield from _both_ways(case, seen)
    found: dict[tuple[str, str], tuple[int, int, int]] = {}
    counts: dict[tuple[str, str], int] = {}
    for q, k, j in Chains(seen).open_triples(LOOKS):
        place = case.names.of(q), case.names.of(k)
        found.setdefault(place, (q, k, j))
        counts[place] = counts.get(place, 0) + 1
        if sum(counts.values()) >= 1000:
            break
    cause = _window_cause(seen) if found else None
    for place, (q, k, j) in found.items():
        names = case.names
        message = f"{names.say(q)} sees {names.say(k)}, which sees {names.say(j)}, but does not see that itself"
        witness = Witness(query=q, key=j, expected=f"visible, or row {k} hidden", actual="hidden")
        yield finding(
            "OCT110",
            message,
            subject=case.subject,
            count=counts[place],
            witness=witness,
            cause=cause,
            segments=place,
        )


def indirect_leaks(case: Case) -> Iterator[Finding]:
    """OCT111: what reaches whom over any number of layers, against the pairs that were declared forbidden."""
    forbidden = case.subject.declared.forbidden
    if forbidden is None:
        raise NotNeeded("no pairs are declared forbidden")
    banned = of_slices(case.subject.length, forbidden.slices_S5)
    chains = Chains(known(case.seen))
    reach = chains.influence()
    rows = np.unique(banned.runs()[0])
    edges = [
        (chains.influence_of(row, reach) + row * banned.stride).reshape(-1) for row in rows.tolist()
    ]
    flows = Pairs(banned.length, np.concatenate(edges) if edges else np.empty(0, dtype=np.int64))
    for group in gather(case, flows & banned):
        way = chains.hops(group.q, group.k)
        names = case.names
        message = f"{names.say(group.k)} reaches {names.say(group.q)}, which is forbidden: " + " sees ".join(
            map(names.say, way)
        )
        yield finding(
            "OCT111",
            message,
            subject=case.subject,
            count=group.count,
            witness=Witness(query=group.q, key=group.k, expected="no way", actual=f"{len(way) - 1} hops"),
            segments=(group.reader, group.source),
        )


def _both_ways(case: Case, seen: Pairs) -> Iterator[Finding]:
    length = seen.length
    rows = np.arange(length, dtype=np.int64)
    lower = of_slices(length, np.array([(0, length, 0, length, CAUSAL)])) if length else seen
    upper = seen - lower
    for chunk in upper.chunks(20_000):
        q_N, k0_N, k1_N = chunk.runs()
        reach = np.minimum(k1_N - k0_N, 1000)
        index = np.repeat(np.arange(len(q_N)), reach)
        k_M = k0_N[index] + np.arange(len(index)) - np.repeat(np.cumsum(reach) - reach, reach)
        both = np.flatnonzero(seen.holds(k_M, q_N[index]))
        if len(both):
            q, k = int(q_N[index[both[0]]]), int(k_M[both[0]])
            whole = of_slices(length, np.array([(0, length, 0, length, FULL)]))
            cause = "nothing is masked" if seen.count == whole.count else _shifted_cause(seen, rows)
            yield finding(
                "OCT110",
                f"{case.names.say(q)} and {case.names.say(k)} see each other",
                subject=case.subject,
                count=len(both),
                witness=Witness(query=q, key=k, expected="at most one sees the other", actual="both do"),
                cause=cause,
                segments=(case.names.of(q), case.names.of(k)),
            )
            return


def _shifted_cause(seen: Pairs, rows: np.ndarray) -> str | None:
    """Whether each row sees exactly one row too many."""
    ends = np.minimum(rows + 2, seen.length)
    shifted = np.stack([rows * seen.stride, rows * seen.stride + ends], axis=1).reshape(-1)
    same = np.array_equal(seen.edges, shifted)
    return "the causal triangle is shifted by one: each row sees the next" if same else None


def _window_cause(seen: Pairs) -> str | None:
    """Whether rows see only so many rows before them."""
    q_N, k0_N, k1_N = seen.runs()
    late = q_N >= seen.length // 2
    widths = np.unique((k1_N - k0_N)[late & (k1_N == q_N + 1)])
    if len(widths) == 1 and 0 < widths[0] <= seen.length // 2:
        return f"every row sees the last {widths[0]} rows only: if that is a window, declare it"
    return None


AUDITS = (
    Audit(name="partial order", codes=("OCT110",), needs=("seen",), run=partial_order),
    Audit(name="indirect leaks", codes=("OCT111",), needs=("seen",), run=indirect_leaks),
)
