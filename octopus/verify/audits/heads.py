"""Which key/value head belongs to which query head."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from octopus.verify.audits.audit import Audit, NotNeeded
from octopus.verify.case import Case, known
from octopus.verify.facets import Heads
from octopus.verify.findings import Finding, Severity, Witness
from octopus.verify.rules import finding


def divisibility(case: Case) -> Iterator[Finding]:
    """OCT301: numbers that have to fit each other."""
    heads = known(case.subject.heads)
    faults = []
    if min(heads.query, heads.key_value, heads.dim) < 1:
        faults.append(f"{heads.query} query heads, {heads.key_value} key/value heads of {heads.dim}: none may be 0")
    elif heads.query % heads.key_value:
        faults.append(f"{heads.query} query heads cannot share {heads.key_value} key/value heads evenly")
    if heads.rotary is not None and (heads.rotary.dim > heads.dim or heads.rotary.dim % 2):
        faults.append(f"{heads.rotary.dim} rotary dimensions do not fit a head of {heads.dim}")
    if heads.query % heads.tensor_parallel:
        faults.append(f"{heads.query} query heads cannot be split over {heads.tensor_parallel} ranks")
    for fault in faults:
        yield finding("OCT301", fault, subject=case.subject, witness=Witness(actual=fault))
    if heads.hidden is not None and not faults and heads.hidden != heads.query * heads.dim:
        message = f"{heads.query} heads of {heads.dim} are {heads.query * heads.dim} wide, the model {heads.hidden}"
        yield finding("OCT301", message, subject=case.subject, severity=Severity.INFO)


def head_map(case: Case) -> Iterator[Finding]:
    """OCT302: the head that each query head was seen to use."""
    heads = _even(case)
    if heads.used_H is None:
        raise NotNeeded("no head map was probed or dumped")
    right_H = np.arange(heads.query) // (heads.query // heads.key_value)
    wrong = np.flatnonzero(heads.used_H != right_H)
    if len(heads.used_H) == heads.query and not len(wrong):
        return
    head = int(wrong[0])
    actual = int(heads.used_H[head])
    yield finding(
        "OCT302",
        f"query head {head} uses key/value head {actual}, not {right_H[head]}",
        subject=case.subject,
        count=len(wrong),
        witness=Witness(expected=str(right_H[head]), actual=str(actual)),
        cause=_map_cause(heads, heads.used_H),
        head=head,
    )


def expanded_shape(case: Case) -> Iterator[Finding]:
    """OCT303: keys after they were repeated."""
    heads = known(case.subject.heads)
    if heads.expanded_shape is None:
        raise NotNeeded("no shape of repeated keys is given")
    _, count, tokens, dim = heads.expanded_shape
    if (count, tokens, dim) == (heads.query, case.subject.length, heads.dim):
        return
    cause = None
    if count == heads.key_value and tokens == case.subject.length * heads.query // heads.key_value:
        cause = "the tokens were repeated instead of the heads"
    right = f"(batch, {heads.query}, {case.subject.length}, {heads.dim})"
    yield finding(
        "OCT303",
        f"repeated keys have the shape {heads.expanded_shape}, expected {right}",
        subject=case.subject,
        witness=Witness(expected=right, actual=str(heads.expanded_shape)),
        cause=cause,
    )


def gradient_map(case: Case) -> Iterator[Finding]:
    """OCT304: where the gradient of one query head arrives. Exact zeros."""
    heads = _even(case)
    if heads.gradient_HG is None:
        raise NotNeeded("no gradients by head are given")
    group = heads.query // heads.key_value
    own_HG = np.arange(heads.query)[:, None] // group == np.arange(heads.key_value)
    reached_HG = heads.gradient_HG != 0
    for wrong_HG, what in ((reached_HG & ~own_HG, "reaches"), (~reached_HG & own_HG, "does not reach")):
        if wrong_HG.any():
            head, other = (int(place) for place in np.argwhere(wrong_HG)[0])
            yield finding(
                "OCT304",
                f"the gradient of query head {head} {what} key/value head {other}; its own is {head // group}",
                subject=case.subject,
                count=int(wrong_HG.sum()),
                witness=Witness(expected=str(head // group), actual=f"{what} {other}"),
                cause=_map_cause(heads, np.argmax(heads.gradient_HG, axis=1)),
                head=head,
            )


def rank_map(case: Case) -> Iterator[Finding]:
    """OCT305: the heads that each rank holds."""
    heads = _even(case)
    if heads.rank_heads is None:
        raise NotNeeded("no heads by rank are given")
    ranks, group = len(heads.rank_heads), heads.query // heads.key_value
    each = heads.query // ranks
    for rank, held in enumerate(heads.rank_heads):
        needed = {head // group for head in range(rank * each, (rank + 1) * each)}
        if lacking := sorted(needed - set(held)):
            yield finding(
                "OCT305",
                f"rank {rank} needs key/value head {lacking[0]} and holds {sorted(held)}",
                subject=case.subject,
                count=len(lacking),
                witness=Witness(expected=str(sorted(needed)), actual=str(sorted(held))),
                segments=(f"rank {rank}",),
            )


def _even(case: Case) -> Heads:
    heads = known(case.subject.heads)
    if heads.key_value < 1 or heads.query % heads.key_value:
        raise NotNeeded("the heads do not divide")
    return heads


def _map_cause(heads: Heads, used_H: np.ndarray) -> str | None:
    if heads.key_value > 1 and np.array_equal(used_H, np.arange(heads.query) % heads.key_value):
        return "heads are tiled (0 1 0 1) instead of repeated (0 0 1 1)"
    if len(set(used_H.tolist())) == 1 and heads.key_value > 1:
        return f"all query heads use key/value head {used_H[0]}"
    return None


AUDITS = (
    Audit(name="divisibility", codes=("OCT301",), needs=("heads",), run=divisibility),
    Audit(name="head map", codes=("OCT302",), needs=("heads",), run=head_map),
    Audit(name="repeated keys", codes=("OCT303",), needs=("heads",), run=expanded_shape),
    Audit(name="gradient map", codes=("OCT304",), needs=("heads",), run=gradient_map),
    Audit(name="rank map", codes=("OCT305",), needs=("heads",), run=rank_map),
)
