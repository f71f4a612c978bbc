"""Small subjects for the tests of the audits: a right tree with a mount, and ways to change one thing."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from octopus.verify.audits import STATIC, run
from octopus.verify.findings import Finding, Outcome
from octopus.verify.oracle import seen_by
from octopus.verify.subject import DenseMask, Descent, Mount, Positions, Ranges, Stretch, Subject

PARENTS = [-1, 0, 1, 1, 3, 1, 5]
"""root: rows 0, 1; branch a: row 2; branch b: rows 3, 4; join: rows 5, 6, which mounts all of b."""
MOUNT = Mount(at=5, k0=3, k1=5, shift=0, placement="append")
STRETCHES = (Stretch("root", 0, 2), Stretch("a", 2, 3), Stretch("b", 3, 5), Stretch("join", 5, 7))
POSITIONS = [0, 1, 2, 2, 3, 4, 5]


def tree(**changes: object) -> Subject:
    """The clean tree; `changes` are fields of the subject."""
    mounts = [(MOUNT.at, MOUNT.k0, MOUNT.k1)]
    descent = Descent(parents_T=np.array(PARENTS), mounts=(MOUNT,), stretches=STRETCHES)
    subject = Subject(
        name="tree",
        length=len(PARENTS),
        mask=dense(matrix(seen_by(PARENTS, mounts))),
        descent=descent,
        positions=Positions(ids_AT=np.array([POSITIONS]), dtype="int64"),
    )
    return replace(subject, **changes)


def bare(seen_QK: np.ndarray, **changes: object) -> Subject:
    """A mask of which nothing else is known."""
    subject = Subject(name="bare", length=seen_QK.shape[1], mask=dense(seen_QK))
    return replace(subject, **changes)


def dense(seen_QK: np.ndarray, values: np.ndarray | None = None) -> DenseMask:
    heads = seen_QK[None] if seen_QK.ndim == 2 else seen_QK
    return DenseMask(seen_HQK=heads, values_HQK=values, convention="bool, True = visible")


def ranges(*slices: tuple[int, int, int, int, int], shifts: Sequence[int] | None = None) -> Ranges:
    moved = None if shifts is None else np.array(shifts)
    return Ranges(slices_S5=np.array(slices, dtype=np.int64).reshape(-1, 5), shifts_S=moved)


def matrix(seen: Sequence[set[int]]) -> np.ndarray:
    """A bool matrix of sets of keys."""
    found = np.zeros((len(seen), len(seen)), dtype=bool)
    for row, keys in enumerate(seen):
        found[row, list(keys)] = True
    return found


def flipped(subject: Subject, query: int, key: int) -> Subject:
    """The subject with one pair of its dense mask turned over."""
    assert isinstance(subject.mask, DenseMask)
    seen_HQK = subject.mask.seen_HQK.copy()
    seen_HQK[:, query, key] ^= True
    return replace(subject, mask=dense(seen_HQK))


def found(subject: Subject, *select: str) -> list[Finding]:
    """What the static audits find; none may be inconclusive."""
    report = run(STATIC, [subject], select=select)
    assert not [check for check in report.checks if check.outcome is Outcome.INCONCLUSIVE]
    return list(report.findings)


def codes(subject: Subject, *select: str) -> set[str]:
    return {finding.code for finding in found(subject, *select)}


def only(subject: Subject, *select: str) -> Finding:
    """The one finding."""
    (finding,) = found(subject, *select)
    return finding
